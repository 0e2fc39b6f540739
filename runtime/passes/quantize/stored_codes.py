"""Weights that a graph already holds quantized: what DequantizeLinear, or a Cast, computes of constant codes."""

from __future__ import annotations

from ...ir.graph import Graph, Node, Value
from ...ir.op import Op
from ...ir.registry import microsoft, onnx
from ...tensor.dtype import DType
from ..pattern.replace_nodes import constant, graphs

CODES = ("int", "uint", "float")
"""Kinds of dtypes of codes."""


def dequantizing() -> frozenset[Op]:
    """The operators that make floats of codes."""
    return frozenset({onnx.DequantizeLinear, microsoft.DequantizeLinear})


def dequantizes(node: Node) -> bool:
    """Whether a node makes floats of codes: DequantizeLinear, and a Cast of a matrix of at most 8 bits an element."""
    if node.op is not onnx.Cast:
        return node.op in dequantizing()
    source, target = node.inputs[0], node.outputs[0].dtype
    if source is None or source.dtype is None or target is None or len(source.shape or ()) < 2:
        return False
    return source.dtype.bits <= 8 and source.dtype.kind in CODES and target.is_float and target.bits > 8


def stored_codes(graph: Graph) -> dict[Value, DType]:
    """The dtype of the codes of each dequantized weight, also where other nodes transpose, reshape or cast it."""
    found: dict[Value, DType] = {}
    for inner in graphs(graph):
        for node in inner.nodes:
            codes = None if node.subgraphs or not node.op.repeatable else _codes(inner, node, found)
            if codes is not None:
                found.update(dict.fromkeys(node.outputs, codes))
    return found


def _codes(graph: Graph, node: Node, found: dict[Value, DType]) -> DType | None:
    """The dtype of the codes that a node computes with; None if it reads anything that is fed."""
    read = [value for value in node.inputs if value is not None]
    if not all(value in found or constant(graph, value) is not None for value in read):
        return None
    if dequantizes(node) and read and (codes := constant(graph, read[0])) is not None:
        return codes.dtype
    return next((found[value] for value in read if value in found), None)
