"""Stored weights: constants of one dtype with a Cast to the compute dtype; graphs widened to f32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Value
from ...tensor.dtype import F32, DType
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import graphs

Change = Callable[[str, StoredTensor, DType], StoredTensor]
"""Casts the named weight to a dtype."""


@dataclass(frozen=True)
class CastStoredWeights:
    """Cast stored weights in place.

    Attributes:
        wanted: the type that a floating-point constant is stored in, None for one that stays as it is.
        change: casts it.
    """

    wanted: Callable[[Value, StoredTensor], DType | None]
    change: Change

    def run(self, graph: Graph) -> bool:
        """Return whether any were cast."""
        found = False
        for inner in graphs(graph):
            build = Builder(inner, [])
            ends = {*inner.inputs, *inner.outputs}
            for name, tensor in list(inner.weights.items()):
                value = inner.values[name]
                dtype = self.wanted(value, tensor) if tensor.dtype.kind == "float" and value not in ends else None
                if dtype not in (None, tensor.dtype):
                    assert dtype is not None
                    _store(build, value, self.change(name, tensor, dtype))
                    found = True
            inner.nodes[:0] = build.nodes
            inner.values = {value.name: value for value in inner.values.values()}
            inner.weights = {name: inner.weights[name] for name in inner.weights if name in inner.values}
        return found


def _store(build: Builder, value: Value, tensor: StoredTensor) -> None:
    """The weight keeps its name and position; the value with the compute dtype gets a new name."""
    graph, name = build.graph, value.name
    assert value.dtype is not None
    stored = Value(name, tensor.dtype, tensor.shape)
    graph.weights[name] = tensor
    graph.constants.pop(name, None)
    value.name, value.carried = graph.fresh(f"{name}/{value.dtype.name}"), None
    graph.values[name] = stored
    build.add("Cast", [stored], {"to": value.dtype.onnx}, outputs=[value])


def widen_to_f32(graph: Graph, dtypes: frozenset[DType], change: Change) -> bool:
    """Compute in f32 what is computed in other types; inputs and outputs of the model keep theirs.

    Returns whether there was anything of these types.

    Args:
        change: casts a constant.
    """
    every = list(graphs(graph))
    values = {value for inner in every for value in (*inner.values.values(), *inner.inputs, *inner.outputs)}
    if not any(value.dtype in dtypes for value in values):
        return False
    given = [
        value
        for value in graph.inputs
        if value.dtype in dtypes and value.name not in graph.weights and not value.container
    ]
    results = [
        (index, value) for index, value in enumerate(graph.outputs) if value.dtype in dtypes and not value.container
    ]
    numbers = {dtype.onnx for dtype in dtypes}
    for inner in every:
        for name, tensor in inner.weights.items():
            if tensor.dtype in dtypes:
                inner.weights[name] = change(name, tensor, F32)
        for node in inner.nodes:
            node.attributes = {
                name: _widened(name, item, numbers, dtypes, change) for name, item in node.attributes.items()
            }
    narrow: Mapping[Value, DType | None] = {value: value.dtype for value in values}
    for value in values:
        if value.dtype in dtypes and value not in given:
            value.dtype, value.carried = F32, None
    head = Builder(graph, [])
    replaced = {value: head.add("Cast", [value], {"to": F32.onnx}) for value in given}
    for value in replaced.values():
        value.dtype = F32
    for inner in every:
        for node in inner.nodes:
            node.inputs = [replaced.get(value, value) if value is not None else None for value in node.inputs]
        if inner is not graph:
            inner.outputs = [replaced.get(value, value) for value in inner.outputs]
    graph.nodes[:0] = head.nodes
    for index, value in results:
        if value not in replaced:
            name, value.name = value.name, graph.fresh(f"{value.name}/f32")
            out = Value(name, narrow[value], value.shape)
            graph.outputs[index] = Builder(graph).add("Cast", [value], {"to": _number(narrow[value])}, outputs=[out])
    graph.values = {value.name: value for value in graph.values.values()}
    return True


TYPE_ATTRIBUTES = frozenset({"dtype", "output_datatype", "output_dtype", "to"})


def _widened(name: str, item: object, numbers: set[int | None], dtypes: frozenset[DType], change: Change) -> object:
    if name in TYPE_ATTRIBUTES and item in numbers:
        return F32.onnx
    import numpy

    if isinstance(item, numpy.ndarray) and item.dtype.name in {dtype.numpy for dtype in dtypes}:
        return item.astype(numpy.float32)
    return change(name, item, F32) if isinstance(item, StoredTensor) and item.dtype in dtypes else item


def _number(dtype: DType | None) -> int | None:
    assert dtype is not None
    return dtype.onnx
