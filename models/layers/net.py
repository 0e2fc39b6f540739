"""Graph builder with a model's configuration and weights.

Operators are called by their ONNX names, ``net.Softmax(x, axis=-1)``; Python numbers among the inputs become f32
constants, lists int64 constants.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Config
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Graph, Value
from ...runtime.tensor.dtype import DTYPES, DType
from ...runtime.tensor.stored_tensor import StoredTensor
from ..schema.computed_weights import f32

STORAGE_ONLY = ("f16", "bf16")
"""Dtypes that weights are stored in but not computed in."""


class Net(Builder):
    """Adds nodes to a graph.

    Args:
        config: the model's hyper-parameters.
        weights: by model names; those used become weights of the graph.

    Attributes:
        scope: prefix of the names of all weights that the net uses: that of a part of a larger model.
        axes: the axis of the positions that rotates each pair of elements; empty for positions of one axis.
    """

    scope = ""
    axes: tuple[int, ...] = ()

    def __init__(self, graph: Graph, config: Config, weights: Mapping[str, StoredTensor]) -> None:
        super().__init__(graph)
        self.config = config
        self.weights = weights
        self._made: dict[Hashable, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[0].isupper():
            raise AttributeError(name)

        def add(*inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            given = {key: value for key, value in attributes.items() if value is not None}
            made = self.node(
                name, [self._value(item) for item in inputs], given, domain=domain, outputs=outputs
            ).outputs
            return made[0] if outputs == 1 else made

        return add

    def _value(self, item: Any) -> Value | None:
        if item is None or isinstance(item, Value):
            return item
        if isinstance(item, np.ndarray):
            return self.constant(item)
        return self.once(
            ("constant", repr(item)), lambda: self.constant(item, "float32" if isinstance(item, float) else "int64")
        )

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `make`, called at most once per key: for masks and angles that all layers share."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def continue_graph(self, other: Net) -> None:
        """Use the weights and constants that another net has added to the same graph."""
        kinds = ("weight", "vector", "constant")
        self._made |= {key: made for key, made in other._made.items() if isinstance(key, tuple) and key[0] in kinds}

    def has(self, name: str) -> bool:
        """Whether the model has a weight of this name."""
        return self.scope + name in self.weights

    def tensor(self, name: str) -> StoredTensor:
        """A required weight. FormatError if the model lacks it."""
        if not self.has(name):
            raise FormatError(
                "E-ARCH-MISSING",
                None,
                f"the model lacks a weight that it needs: {self.scope}{name}",
                hint="Check that all shards are present",
            )
        return self.weights[self.scope + name]

    def matrix(self, name: str) -> Value:
        """A weight for matrix products and Gather: as stored if in blocks, f32 or `STORAGE_ONLY`, otherwise as f32."""
        tensor = self.tensor(name)
        kept = tensor.dtype.kind != "float" or tensor.dtype.name in ("f32", *STORAGE_ONLY)
        return self.once(("weight", name), lambda: self._weight(name, tensor if kept else tensor.cast("f32")))

    def vector(self, name: str) -> Value:
        """A weight as f32, for everything else."""
        tensor = self.tensor(name)
        return self.once(
            ("vector", name), lambda: self._weight(name, tensor if tensor.dtype.name == "f32" else tensor.cast("f32"))
        )

    def under(self, prefix: str) -> bool:
        """Whether the model has weights whose names begin with `prefix`."""
        return any(name.startswith(prefix) for name in self.weights)

    def named(self, name: str, values: StoredTensor | np.ndarray) -> Value:
        """A constant under a name of its own: a weight that was computed from others."""
        held = values if isinstance(values, StoredTensor) else StoredTensor.of(values)
        return self.once(("computed", name), lambda: self._weight(name, held))

    def array(self, name: str) -> np.ndarray:
        """The elements of a small weight, f32."""
        return np.asarray(f32(self.tensor(name)).numpy())

    def _weight(self, name: str, tensor: StoredTensor) -> Value:
        name = self.scope + name
        value = Value(name, tensor.dtype, tensor.shape)
        self.graph.weights[name] = tensor
        self.graph.values[name] = value
        return value

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """Declare an input of the graph."""
        kind: DType = DTYPES[dtype]
        value = Value(name, kind, tuple(shape))
        self.graph.inputs.append(value)
        self.graph.values[name] = value
        return value

    def optional_input(self, name: str, default: np.ndarray, shape: Sequence[Dim]) -> Value:
        """Declare an input of the graph that has a value where none is fed."""
        value = self.input(name, StoredTensor.of(default).dtype.name, shape)
        self.graph.weights[name] = StoredTensor.of(default)
        return value

    def compute_input(self, name: str, shape: Sequence[Dim] | None, compute: Callable[[Value], Value]) -> None:
        """Compute an input of the graph before all nodes, from a new one of the same name and another shape; of no
        input at all if `shape` is None, where `compute` gets the old one."""
        graph = self.graph
        old = graph.values.pop(name)
        index = graph.inputs.index(old)
        new = old if shape is None else Value(name, old.dtype, tuple(shape))
        graph.inputs[index : index + 1] = [] if shape is None else [new]
        old.name = graph.fresh(f"{name}_computed")
        graph.values |= {old.name: old} if shape is None else {old.name: old, name: new}
        nodes, self.nodes = self.nodes, []
        self.add("Identity", [compute(new)], outputs=[old])
        nodes[:0] = self.nodes
        self.nodes = nodes

    def rename_input(self, name: str, other: str) -> None:
        """Call an input of the graph `other`."""
        value = self.graph.values.pop(name)
        value.name = other
        self.graph.values[other] = value

    def output(self, name: str, value: Value) -> None:
        """Declare a value as an output of the graph."""
        named = Value(name)
        self.add("Identity", [value], outputs=[named])
        self.graph.outputs.append(named)

    def split_heads(self, x: Value, heads: int, size: int) -> Value:
        """[batch, length, heads x size] as [batch, length, heads, size]."""
        value: Value = self.Reshape(x, [0, 0, heads, size])
        return value

    def merge_heads(self, x: Value) -> Value:
        """[batch, length, heads, size] as [batch, length, heads x size]."""
        value: Value = self.Reshape(x, [0, 0, -1])
        return value

    def split(self, x: Value, lengths: Sequence[int], axis: int = -1) -> list[Value]:
        """`x` split into pieces along an axis."""
        pieces: list[Value] = self.Split(x, list(lengths), axis=axis, outputs=len(lengths))
        return pieces
