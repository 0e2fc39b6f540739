"""Nets: a graph under construction that has a configuration and weights by our names.

Operators are called by their ONNX names, ``net.Softmax(x, axis=-1)``; numbers among the inputs become f32 constants, lists int64 ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.arch import Config
from ...runtime.build import Builder
from ...runtime.dtype import DTYPES, DType
from ...runtime.errors import FormatError
from ...runtime.graph import Dim, Graph, Value
from ...runtime.tensor import Tensor

STORAGE_ONLY = ("f16", "bf16")
"""Types that weights are stored in and nothing is computed in."""


class Net(Builder):
    """Adds nodes to a graph.

    Args:
        config: of the model.
        weights: by our names; those that are used become weights of the graph.
    """

    def __init__(self, graph: Graph, config: Config, weights: Mapping[str, Tensor]) -> None:
        super().__init__(graph)
        self.config = config
        self.weights = weights
        self._made: dict[Hashable, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[0].isupper():
            raise AttributeError(name)

        def add(*inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            given = {key: value for key, value in attributes.items() if value is not None}
            made = self.node(name, [self._value(item) for item in inputs], given, domain=domain, outputs=outputs).outputs
            return made[0] if outputs == 1 else made

        return add

    def _value(self, item: Any) -> Value | None:
        if item is None or isinstance(item, Value):
            return item
        if isinstance(item, np.ndarray):
            return self.constant(item)
        return self.once(("constant", repr(item)), lambda: self.constant(item, "float32" if isinstance(item, float) else "int64"))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made at most once for a key: masks and angles that all layers share."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def has(self, name: str) -> bool:
        """Whether the model has a weight."""
        return name in self.weights

    def tensor(self, name: str) -> Tensor:
        """A weight that has to be there. FormatError where the model lacks it, which only optional weights can."""
        if name not in self.weights:
            raise FormatError("E-ARCH-MISSING", None, f"the model lacks a weight that it needs: {name}", hint="Are all shards there?")
        return self.weights[name]

    def matrix(self, name: str) -> Value:
        """A weight as it is stored, in blocks, f32 or `STORAGE_ONLY`, and of other dtypes as f32; for matrix products and Gather."""
        tensor = self.tensor(name)
        kept = tensor.dtype.kind != "float" or tensor.dtype.name in ("f32", *STORAGE_ONLY)
        return self.once(("weight", name), lambda: self._weight(name, tensor if kept else tensor.cast("f32")))

    def vector(self, name: str) -> Value:
        """A weight as f32; for everything else."""
        tensor = self.tensor(name)
        return self.once(("vector", name), lambda: self._weight(name, tensor if tensor.dtype.name == "f32" else tensor.cast("f32")))

    def _weight(self, name: str, tensor: Tensor) -> Value:
        value = Value(name, tensor.dtype, tensor.shape)
        self.graph.weights[name] = tensor
        self.graph.values[name] = value
        return value

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """An input of the model."""
        kind: DType = DTYPES[dtype]
        value = Value(name, kind, tuple(shape))
        self.graph.inputs.append(value)
        self.graph.values[name] = value
        return value

    def output(self, name: str, value: Value) -> None:
        """Give a value out under a name."""
        named = Value(name)
        self.add("Identity", [value], outputs=[named])
        self.graph.outputs.append(named)

    def heads_apart(self, x: Value, heads: int, size: int) -> Value:
        """[batch, length, heads x size] as [batch, length, heads, size]."""
        value: Value = self.Reshape(x, [0, 0, heads, size])
        return value

    def heads_together(self, x: Value) -> Value:
        """[batch, length, heads, size] as [batch, length, heads x size]."""
        value: Value = self.Reshape(x, [0, 0, -1])
        return value

    def split(self, x: Value, lengths: Sequence[int], axis: int = -1) -> list[Value]:
        """`x` in pieces along an axis."""
        pieces: list[Value] = self.Split(x, list(lengths), axis=axis, outputs=len(lengths))
        return pieces
