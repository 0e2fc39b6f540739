"""Steering: inputs of one element on which conditions and trip counts depend. A plan is made for each of the first few values that they have."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node, Value

STEERED = {"If": 1, "Loop": 2}
"""How many inputs of an operator decide what it does, its first ones; a Scan goes on for as long as its inputs are."""
VALUES = 8
"""Plans for values of steering inputs, after which a program stops to make them."""
MOST_NODES = 32
"""Nodes between an input and what it steers."""


def steering(nodes: Sequence[Node], inputs: Sequence[Value]) -> frozenset[int]:
    """Positions of the inputs that steer: integers and truths that a condition or a number of iterations is computed from in a few steps."""
    producers: dict[Value, list[Value | None]] = {}
    roots: list[Value | None] = []
    waiting: list[Sequence[Node]] = [nodes]
    while waiting:
        for node in waiting.pop():
            producers.update((value, list(node.inputs)) for value in node.outputs)
            deciding = STEERED.get(node.op.name, 0)
            roots += node.inputs[:deciding]
            for graph in node.subgraphs:
                waiting.append(graph.nodes)
                roots += _carried(node, graph, producers) if deciding else []
    places = {value: position for position, value in enumerate(inputs) if value.dtype is not None and value.dtype.kind in ("int", "uint", "bool")}
    return frozenset(places[value] for root in roots for value in _behind(root, producers) if value in places)


def _carried(node: Node, body: Graph, producers: dict[Value, list[Value | None]]) -> list[Value | None]:
    """Where a loop's inputs come from, and its condition."""
    if len(body.inputs) != len(node.inputs) or len(body.inputs) < 2:
        return []
    for position, (inner, outer) in enumerate(zip(body.inputs[2:], node.inputs[2:], strict=True)):
        producers[inner] = [outer, *body.outputs[position + 1 : position + 2]]
    return list(body.outputs[:1])


def _behind(root: Value | None, producers: dict[Value, list[Value | None]]) -> set[Value]:
    """What a value is computed from, nothing where that is much."""
    seen: set[Value] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if value is not None and value not in seen:
            seen.add(value)
            waiting += producers.get(value, [])
            if len(seen) > 2 * MOST_NODES:
                return set()
    return seen
