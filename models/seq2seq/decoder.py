"""Decoders that attend to an encoder's hidden states.

Besides the inputs of `layers.decoder`, a decoder whose sources have different lengths has ``encoder_attention_mask``
[texts, source], i64. There are two kinds, as for KV caches:

- growing: the decoder computes keys and values of the source from ``encoder_hidden_states`` [texts, source, hidden],
  f32, and returns them with those of its own tokens: ``present.0.encoder.key`` and ``present.0.decoder.key``. Where
  ``use_cache_branch`` [1] is true, it takes both from ``past_key_values.0.encoder.key`` and
  ``past_key_values.0.decoder.key`` and reads no hidden states; where it is false, it ignores these. Exported models
  have this, the merged decoder of Optimum.
- fixed: the encoder's graph computes keys and values of the source once, and the decoder has them as inputs:
  ``cross_key_values.0.key`` [texts, heads, source, head_dim]. A text may have several rows of the decoder's batch, one
  after another, which share the keys and values: beams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import Config
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.attention import PLAIN_SCORES, Scores
from ..layers.decoder import CACHE_POSITION, PAST, TOTAL, Decoder
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.rope import Rotary

if TYPE_CHECKING:
    from ...runtime.ir.graph import Dim

SOURCE_HIDDEN, SOURCE_MASK, SWITCH = "encoder_hidden_states", "encoder_attention_mask", "use_cache_branch"
"""Names of inputs of a decoder."""
ENCODER, DECODER, WITH_PAST = "encoder", "decoder", "decoder_with_past"
"""Names of the graphs; the last one is of exported models that have two decoders."""
TEXTS, SOURCE = "texts", "encoder_sequence_length"
"""Symbolic dimensions: texts, and tokens of the longest one."""
KINDS = ("key", "value")
SELF, OTHER = "decoder", "encoder"
"""Sources of a layer's keys and values: its own tokens, and the encoder's."""
CROSS = "cross_key_values.{i}.{kind}"
"""Keys and values of the source in layer i: outputs of the encoder's graph, inputs of the decoder's."""


class CrossDecoder(Decoder):
    """A net with the inputs of a decoder that attends to an encoder; arguments as of `Decoder`.

    Args:
        padded: whether sources of one batch are padded: otherwise the graph has no input ``encoder_attention_mask``.
    """

    def __init__(
        self,
        graph: Graph,
        config: Config,
        weights: Mapping[str, StoredTensor],
        *,
        fixed: bool = False,
        padded: bool = True,
    ) -> None:
        super().__init__(graph, config, weights, fixed=fixed)
        self.padded = padded
        self._pasts: dict[str, Value] = {}

    def declare(self, shape: tuple[Dim, ...]) -> None:
        """Declare the inputs; `shape`: of ``input_ids``, of which the first dimensions are batch and length."""
        texts: Dim = TEXTS if self.fixed else "batch_size"
        self.ids = self.input("input_ids", "i64", shape)
        if self.padded:
            self.source_mask = self.input(SOURCE_MASK, "i64", (texts, SOURCE))
        if self.fixed:
            self.mask = self.input("attention_mask", "i64", ("batch_size", TOTAL))
            self.cache_position = self.input(CACHE_POSITION, "i64", ("batch_size",))
        else:
            self._begin_merged()

    def _begin_merged(self) -> None:
        """Declare hidden states, past keys and values and their switch; an input that a branch does not use is cut to
        length 0."""
        config = self.config
        width = config.values.get("source_hidden", config.hidden)
        hidden = self.input(SOURCE_HIDDEN, "f32", ("batch_size", SOURCE, width))
        lengths = {SELF: PAST, OTHER: f"{SOURCE}_out"}
        names = [
            (f"key_values.{i}.{side}.{kind}", length)
            for i in range(config.decoder_layers)
            for side, length in lengths.items()
            for kind in KINDS
        ]
        given = {name: self.past(name, (config.heads, length, config.head_dim)) for name, length in names}
        cached = self.Cast(self.input(SWITCH, "bool", (1,)), to=7)
        ends = {
            side: self.Mul(self.Shape(given[f"key_values.0.{side}.key"], start=2, end=3), cached) for side in lengths
        }
        for name, value in given.items():
            self._pasts[name] = self.Slice(value, [0], ends[name.split(".")[2]], [2])
        first_run = self.Sub([1], cached)
        self.source = self.Slice(hidden, [0], self.Mul(self.Shape(hidden, start=1, end=2), first_run), [1])
        batch, length = (self.Shape(self.ids, start=axis, end=axis + 1) for axis in (0, 1))
        shape = self.Concat(batch, self.Add(length, ends[SELF]), axis=0)
        self.mask = self.Expand(self.Constant(value_int=1), shape)

    def cached(self, name: str, new: Value, heads: int, size: int, window: int | None = None) -> Value:
        """Keys or values [batch, heads, total, size] of past and current tokens, as of `Decoder`."""
        if self.fixed:
            return super().cached(name, new, heads, size, window)
        return self._appended(name, self.Transpose(self.split_heads(new, heads, size), perm=[0, 2, 1, 3]))

    def _appended(self, name: str, new: Value) -> Value:
        """Past and current keys or values [batch, heads, total, size] of a growing cache."""
        whole: Value = self.Concat(self._pasts[name], new, axis=2)
        self.present(name, whole)
        return whole

    def distances(self) -> Value:
        """Index of the key less that of the query, i64 [length, total]; in a fixed cache [batch, length, total]."""
        keys = self.once("keys", lambda: self._arange(self.Shape(self.mask, start=1, end=2)))
        return self.once("distances", lambda: self.Sub(keys, self._query_rows()))

    def token_positions(self) -> Value:
        """Indices of this run's tokens, i64 [length]; in a fixed cache [batch, length]."""
        return self.once("token_positions", lambda: self.Squeeze(self._query_rows(), [-1]))

    def _query_rows(self) -> Value:
        return self.Squeeze(self._queries(), [1]) if self.fixed else self._queries()

    def rotated(self, x: Value, rotary: Rotary | None) -> Value:
        """Queries or keys [batch, length, heads x head_dim] of this run's tokens, rotated by their positions."""
        if rotary is None:
            return x
        batch, length = (self.Shape(self.ids, start=axis, end=axis + 1) for axis in (0, 1))
        shape = self.once("shape", lambda: self.Concat(batch, length, axis=0))
        positions = self.once("positions", lambda: self.Expand(self.token_positions(), shape))
        return rotary.rotate(self, x, self.config.heads, positions)

    def attend_to_itself(
        self, x: Value, layer: int, name: str, scores: Scores = PLAIN_SCORES, rotary: Rotary | None = None
    ) -> Value:
        """Causal self-attention of layer `layer` with the weights ``NAME.{q,k,v,o}``; queries and keys are rotated by
        `rotary`."""
        heads, size = self.config.heads, self.config.head_dim
        q, k, v = (linear(self, x, f"{name}.{part}") for part in "qkv")
        q, k = self.rotated(q, rotary), self.rotated(k, rotary)
        keys, values = (
            self.cached(f"key_values.{layer}.{SELF}.{kind}", y, heads, size)
            for kind, y in zip(KINDS, (k, v), strict=True)
        )
        queries = self.Transpose(self.split_heads(q, heads, size), perm=[0, 2, 1, 3])
        mask = self.visible() if scores.mask is None else scores.mask
        y = self.Attention(queries, keys, values, mask, scale=scores.scale)
        return linear(self, self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")

    def attend_to_source(
        self, x: Value, layer: int, name: str, scale: float | None = None, rotary: Rotary | None = None
    ) -> Value:
        """Attention of layer `layer` to the encoder's hidden states with the weights ``NAME.{q,k,v,o}``; queries are
        rotated by `rotary`."""
        heads, size = self.config.heads, self.config.head_dim
        keys, values = self._source_key_values(layer, name)
        of_texts = self.source_mask if self.padded else keys if self.fixed else self.ids
        texts = self.once("texts", lambda: self.Shape(of_texts, start=0, end=1))
        shape = self.once("query_shape", lambda: self.Concat(texts, [-1, heads, size], axis=0))
        queries = self.Transpose(
            self.Reshape(self.rotated(linear(self, x, f"{name}.q"), rotary), shape), perm=[0, 2, 1, 3]
        )
        visible = self._source_visible() if self.padded else None
        y = self.Attention(queries, keys, values, visible, scale=scale)
        whole = self.once("hidden_shape", lambda: self.Concat(self.Shape(self.ids, end=2), [heads * size], axis=0))
        return linear(self, self.Reshape(self.Transpose(y, perm=[0, 2, 1, 3]), whole), f"{name}.o")

    def _source_key_values(self, layer: int, name: str) -> tuple[Value, ...]:
        if not self.fixed:
            found = source_key_values(self, self.source, name)
            given = zip(KINDS, found, strict=True)
            return tuple(self._appended(f"key_values.{layer}.{OTHER}.{kind}", new) for kind, new in given)
        shape = (TEXTS, self.config.heads, SOURCE, self.config.head_dim)
        return tuple(self.input(CROSS.format(i=layer, kind=kind), "f32", shape) for kind in KINDS)

    def _source_visible(self) -> Value:
        """Whether keys of the source are tokens, bool [texts, 1, 1, source]; exported models have a row for each query,
        as onnxruntime needs it."""
        return self.once("source_visible", self._source_tokens)

    def _source_tokens(self) -> Value:
        tokens: Value = self.Unsqueeze(self.Cast(self.source_mask, to=9), [1, 2])
        if self.fixed:
            return tokens
        batch, source = (self.Shape(self.source_mask, start=axis, end=axis + 1) for axis in (0, 1))
        shape = self.Concat(batch, [1], self.Shape(self.ids, start=1, end=2), source, axis=0)
        whole: Value = self.Expand(tokens, shape)
        return whole


def source_key_values(net: Net, x: Value, name: str) -> tuple[Value, Value]:
    """Keys and values [batch, heads, source, head_dim] of hidden states, with the weights ``NAME.{k,v}``."""
    heads, size = net.config.heads, net.config.head_dim
    keys, values = (
        net.Transpose(net.split_heads(linear(net, x, f"{name}.{part}"), heads, size), perm=[0, 2, 1, 3])
        for part in "kv"
    )
    return keys, values
