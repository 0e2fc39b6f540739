"""Value specialization: one plan per value of a scalar input that an If or Loop depends on."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Graph, Node, Value
from ..ir.registry import onnx

MAX_SPECIALIZATIONS = 8
"""Plans made for values of one input signature; further values share a plan without specialization."""
MAX_ANCESTORS = 32
"""Nodes between an input and the condition or trip count that depends on it."""


def specialized_inputs(nodes: Sequence[Node], inputs: Sequence[Value]) -> frozenset[int]:
    """Positions of integer and boolean inputs from which a condition or trip count is computed in a few nodes."""
    producers: dict[Value, list[Value | None]] = {}
    roots: list[Value | None] = []
    pending: list[Sequence[Node]] = [nodes]
    while pending:
        for node in pending.pop():
            producers.update((value, list(node.inputs)) for value in node.outputs)
            deciding = 1 if node.op is onnx.If else 2 if node.op is onnx.Loop else 0
            # leading inputs that decide what is computed; a Scan runs for the length of its inputs
            roots += node.inputs[:deciding]
            for graph in node.subgraphs:
                pending.append(graph.nodes)
                roots += _loop_condition(node, graph, producers) if deciding else []
    places = {
        value: position
        for position, value in enumerate(inputs)
        if value.dtype is not None and value.dtype.kind in ("int", "uint", "bool")
    }
    return frozenset(places[value] for root in roots for value in _ancestors(root, producers) if value in places)


def _loop_condition(node: Node, body: Graph, producers: dict[Value, list[Value | None]]) -> list[Value | None]:
    """Record the producers of a loop body's inputs; returns the loop condition."""
    if len(body.inputs) != len(node.inputs) or len(body.inputs) < 2:
        return []
    for position, (inner, outer) in enumerate(zip(body.inputs[2:], node.inputs[2:], strict=True)):
        producers[inner] = [outer, *body.outputs[position + 1 : position + 2]]
    return list(body.outputs[:1])


def _ancestors(root: Value | None, producers: dict[Value, list[Value | None]]) -> set[Value]:
    """The values that a value is computed from; empty if there are more than `2 * MAX_ANCESTORS`."""
    seen: set[Value] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if value is not None and value not in seen:
            seen.add(value)
            pending += producers.get(value, [])
            if len(seen) > 2 * MAX_ANCESTORS:
                return set()
    return seen
