"""A decoder that reads a whole text at once, and shows what each token attends to in the source.

Inputs are ``input_ids`` and the keys and values of the source, as of a `CrossDecoder` of fixed capacity; outputs are
the logits and ``cross_scores.I`` [batch, heads, length, source], attention of layer I before the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import Config
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.linear import linear
from .decoder import CrossDecoder

if TYPE_CHECKING:
    from ...runtime.ir.graph import Dim
    from ..layers.rope import Rotary

ALIGNMENT = "alignment"
"""Name of the graph."""
SCORES = "cross_scores.{i}"


class AlignmentDecoder(CrossDecoder):
    """A net with the inputs of such a decoder; arguments as of `Decoder`."""

    def __init__(self, graph: Graph, config: Config, weights: Mapping[str, StoredTensor]) -> None:
        super().__init__(graph, config, weights, fixed=True, padded=False)

    def declare(self, shape: tuple[Dim, ...]) -> None:
        self.ids = self.input("input_ids", "i64", shape)

    def cached(self, name: str, new: Value, heads: int, size: int, window: int | None = None) -> Value:
        value: Value = self.Transpose(self.split_heads(new, heads, size), perm=[0, 2, 1, 3])
        return value

    def token_positions(self) -> Value:
        return self.once("token_positions", lambda: self.Squeeze(self._positions(), [0]))

    def visible(self, window: int | None = None, *, chunked: bool = False) -> Value:
        """Attention mask, bool [length, length]: every token sees the ones before it."""
        return self.once(
            "visible", lambda: self.GreaterOrEqual(self.Transpose(self._positions(), perm=[1, 0]), self._positions())
        )

    def _positions(self) -> Value:
        """0, 1, 2 ..., i64 [1, length]."""
        return self.once("positions", lambda: self._arange(self.Shape(self.ids, start=1, end=2)))

    def attend_to_source(
        self, x: Value, layer: int, name: str, scale: float | None = None, rotary: Rotary | None = None
    ) -> Value:
        heads, size = self.config.heads, self.config.head_dim
        keys, values = self._source_key_values(layer, name)
        q = self.rotated(linear(self, x, f"{name}.q"), rotary)
        queries = self.Transpose(self.split_heads(q, heads, size), perm=[0, 2, 1, 3])
        factor = 1 / math.sqrt(size) if scale is None else scale
        scores = self.MatMul(self.Mul(queries, factor), self.Transpose(keys, perm=[0, 1, 3, 2]))
        self.output(SCORES.format(i=layer), scores)
        y = self.MatMul(self.Softmax(scores, axis=-1), values)
        return linear(self, self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")
