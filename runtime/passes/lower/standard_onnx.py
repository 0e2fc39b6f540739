"""Lowering to standard ONNX for other runtimes: operators are decomposed, and 16-bit weights get a Cast."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.dtype import BF16, F16, F32, BlockType
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import constant, rewrite
from .decomposition import decomposed


def to_standard_onnx(graph: Graph, dequantize: Callable[[StoredTensor], StoredTensor]) -> None:
    """Rewrite `graph` to use only ONNX's operators, with one dtype per node.

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
    return bool(node.op.domain) and decomposed(node, build)


def _widened(node: Node, build: Builder, widened: dict[Value, Value]) -> bool:
    """Casts before a product whose weight is f16 or bf16; a transposed weight is cast after the transpose."""
    if node.op is not onnx.MatMul:
        return False
    for index, value in enumerate(node.inputs):
        if value is None or not _narrow(build.graph, value):
            continue
        if value not in widened:
            widened[value] = build.add("Cast", [value], {"to": F32.onnx})
        node.inputs[index] = widened[value]
    build.keep(node)
    return True


def _narrow(graph: Graph, value: Value) -> bool:
    """Whether a value is a 16-bit weight, possibly reshaped or transposed."""
    while value.producer is not None and value.producer.op in (onnx.Transpose, onnx.Gather, onnx.Reshape):
        first = value.producer.inputs[0]
        assert first is not None
        value = first
    held = constant(graph, value)
    return held is not None and held.dtype in (F16, BF16)
