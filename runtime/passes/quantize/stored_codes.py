"""Weights that a graph already holds quantized: what DequantizeLinear computes of constant codes."""

from __future__ import annotations

from ...ir.graph import Graph, Node, Value
from ...ir.op import Op
from ...ir.registry import microsoft, onnx
from ...tensor.dtype import DType
from ..pattern.replace_nodes import constant, graphs


def dequantizing() -> frozenset[Op]:
    """The operators that make floats of codes."""
    return frozenset({onnx.DequantizeLinear, microsoft.DequantizeLinear})


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
    if node.op in dequantizing() and read and (codes := constant(graph, read[0])) is not None:
        return codes.dtype
    return next((found[value] for value in read if value in found), None)
