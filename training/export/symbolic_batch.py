"""Symbolic batch: a graph of fixed shapes becomes one of any batch, by comparison with the graph of a longer batch.

Both graphs have the same nodes. Constants of integers that differ, such as the shapes of Reshape, are multiples of the
batch, and are computed from the length of the first input's first dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import UnsupportedError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.shape_inference import infer
from ...runtime.tensor.dtype import of_numpy


def with_symbolic_batch(graph: Graph, longer: Graph, name: str) -> None:
    """Make the first dim of all inputs symbolic, in place.

    Args:
        longer: the graph of the same function of inputs with one row more.
        name: of the dimension.

    Raises UnsupportedError if the graphs differ by more than by multiples of the batch.
    """
    first = graph.inputs[0].shape
    assert first is not None
    rows = first[0]
    assert isinstance(rows, int)
    same_nodes = len(graph.nodes) == len(longer.nodes) and all(map(_alike, graph.nodes, longer.nodes))
    if not same_nodes or any((value.shape or (None,))[0] != rows for value in graph.inputs):
        raise _depends("its operators")
    batch = _Batch(graph, rows)
    for node, other in zip(graph.nodes.copy(), longer.nodes, strict=True):
        for index, (value, grown) in enumerate(zip(node.inputs, other.inputs, strict=True)):
            if value is None or grown is None or value.producer is not None or value in graph.inputs:
                continue
            one, two = graph.weights[value.name].numpy(), longer.weights[grown.name].numpy()
            if one.shape != two.shape or not np.array_equal(one, two):
                node.inputs[index] = batch.instead_of(one, two)
    graph.nodes[:0] = batch.nodes
    for value in graph.values.values():
        if value in graph.inputs:
            assert value.shape is not None
            value.shape = (name, *value.shape[1:])
        elif value.name not in graph.weights:
            value.shape = None
    _drop_unused_weights(graph)
    infer(graph)


def _alike(node: Node, other: Node) -> bool:
    """Whether nodes have the same operator and attributes."""
    return node.op is other.op and len(node.inputs) == len(other.inputs) and _same(node.attributes, other.attributes)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _drop_unused_weights(graph: Graph) -> None:
    used = {value.name for node in graph.nodes for value in node.inputs if value is not None}
    graph.weights = {name: tensor for name, tensor in graph.weights.items() if name in used}
    for name in [each for each, value in graph.values.items() if value.producer is None]:
        if name not in graph.weights and graph.values[name] not in graph.inputs:
            del graph.values[name]


def _depends(what: str) -> UnsupportedError:
    why = f"the function cannot have a batch of any length, because {what} depend on it"
    return UnsupportedError("E-EXPORT-BATCH", None, why, hint="Export it without dynamic_batch")


class _Batch:
    """Nodes that compute integers from the length of the batch."""

    def __init__(self, graph: Graph, rows: int) -> None:
        self.nodes: list[Node] = []
        self._build = Builder(graph, self.nodes)
        self._rows = rows
        self._input = graph.inputs[0]
        self._length: Value | None = None

    def instead_of(self, array: np.ndarray, longer: np.ndarray) -> Value:
        """A value of the integers of an array, those that differ from `longer` in proportion to the batch."""
        if array.shape != longer.shape or array.dtype.kind != "i" or array.ndim > 1:
            raise _depends("its constants")
        build = self._build
        if self._length is None:
            shape = build.add("Shape", [self._input])
            self._length = build.add("Slice", [shape, build.constant([0]), build.constant([1])])
        parts: list[Value] = []
        for one, two in zip(array.reshape(-1).tolist(), longer.reshape(-1).tolist(), strict=True):
            if one == two:
                parts.append(build.constant([one]))
                continue
            factor = two - one
            if one != factor * self._rows:
                raise _depends("its constants")
            parts.append(build.add("Mul", [self._length, build.constant([factor])]) if factor != 1 else self._length)
        found = parts[0] if len(parts) == 1 else build.add("Concat", parts, {"axis": 0})
        if not array.ndim:
            found = build.add("Squeeze", [found, build.constant([0])])
        return found if array.dtype == np.int64 else build.add("Cast", [found], {"to": of_numpy(array.dtype).onnx})
