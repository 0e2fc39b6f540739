"""Common subexpression elimination: nodes with equal operator, inputs and attributes are merged."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ...base.dataclass import dataclass
from ...ir.graph import Graph, Node, Value
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, graphs, substitute

MAX_COMPARED_BYTES = 1 << 12
"""Bytes of constants that are compared by value; larger constants are equal only if they are the same weight."""


@dataclass(frozen=True)
class EliminateCommonSubexpressions:
    """Merge equal nodes of a graph, and equal small constants."""

    def run(self, graph: Graph) -> bool:
        """Return whether any were merged."""
        replaced: dict[Value, Value] = {}
        for inner in graphs(graph):
            seen: dict[Hashable, Node] = {}
            outputs = set(inner.outputs)
            for node in inner.nodes:
                if not node.op.repeatable or node.subgraphs or outputs & set(node.outputs):
                    continue
                first = seen.setdefault(_key(inner, node, replaced), node)
                if first is not node and len(first.outputs) >= len(node.outputs):
                    replaced.update(
                        {gone: kept for gone, kept in zip(node.outputs, first.outputs, strict=False) if kept.name}
                    )
        return substitute(graph, replaced) and (RemoveDeadCode().run(graph) or True)


def _key(graph: Graph, node: Node, replaced: dict[Value, Value]) -> Hashable:
    inputs = tuple(_identity(graph, value if value is None else replaced.get(value, value)) for value in node.inputs)
    attributes = tuple(sorted((name, _frozen(value)) for name, value in node.attributes.items()))
    return (node.op, inputs, attributes, tuple(bool(value.name) for value in node.outputs))


def _identity(graph: Graph, value: Value | None) -> Hashable:
    held = constant(graph, value)
    if held is None or held.nbytes > MAX_COMPARED_BYTES or held.dtype.kind == "text":
        return value
    return (held.dtype, held.shape, bytes(held.raw()))


def _frozen(value: Any) -> Hashable:
    if hasattr(value, "tobytes"):
        return (str(value.dtype), value.shape, repr(value.tolist()) if value.dtype.kind == "O" else value.tobytes())
    return repr(value)
