"""Portable: operators of our own expressed by ONNX's, and weights that are stored as other types widened by nodes, as other runtimes need them."""

from __future__ import annotations

from collections.abc import Callable

from ..build import Builder
from ..dtype import BF16, F16, F32, BlockType
from ..graph import Graph, Node, Value
from ..tensor import Tensor
from .rewrite import constant, rewrite

MOVES = ("Transpose", "Gather", "Reshape")
"""Operators whose result has the type of their first input."""


def portable(graph: Graph, dequantize: Callable[[Tensor], Tensor]) -> None:
    """Make `graph` one that only ONNX's operators are needed for, with inputs of one type each.

    Args:
        dequantize: the f32 values of a quantized weight.
    """
    for name, tensor in graph.weights.items():
        if isinstance(tensor.dtype, BlockType):
            graph.weights[name] = dequantize(tensor)
            graph.values[name].dtype = F32
    rewrite(graph, _lowered)
    widened: dict[Value, Value] = {}
    rewrite(graph, lambda node, build: _widened(node, build, widened))


def _lowered(node: Node, build: Builder) -> bool:
    if node.op.domain != "candle" or node.op.lower is None:
        return False
    node.op.lower(node, build)
    return True


def _widened(node: Node, build: Builder, widened: dict[Value, Value]) -> bool:
    """Casts in front of a product whose weight is f16 or bf16; a transposed one is cast behind the transposition."""
    if node.op.name != "MatMul" or node.op.domain:
        return False
    for place, value in enumerate(node.inputs):
        if value is None or not _narrow(build.graph, value):
            continue
        if value not in widened:
            widened[value] = build.add("Cast", [value], {"to": F32.onnx})
        node.inputs[place] = widened[value]
    build.keep(node)
    return True


def _narrow(graph: Graph, value: Value) -> bool:
    """Whether a value is a weight of a half type, moved about or not."""
    while value.producer is not None and value.producer.op.name in MOVES:
        first = value.producer.inputs[0]
        assert first is not None
        value = first
    held = constant(graph, value)
    return held is not None and held.dtype in (F16, BF16)
