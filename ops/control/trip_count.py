"""Trip counts of Loops whose condition depends on counters alone, computed before the run for known output shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.ir.graph import Graph, Node, Value

if TYPE_CHECKING:
    from ...runtime.plan.planner import Planner

MOST_ITERATIONS = 1 << 12
"""Iterations that are counted ahead."""
MOST_NODES = 12
"""Nodes that a condition may depend on."""


def known_value(planner: Planner, value: Value | None) -> np.ndarray | None:
    """The elements of a value of the plan that do not depend on a run."""
    return None if value is None else planner.facts.array(value)


def iterations(planner: Planner, node: Node, body: Graph) -> int | None:
    """Number of iterations of a Loop, None if it depends on more than counters.

    Args:
        node: as it is in the plan; body: as it is in the model.
    """
    trips, condition, *states = [*node.inputs, None, None][: max(len(node.inputs), 2)]
    bound = None if trips is None else known_value(planner, trips)
    starts = np.array(True) if condition is None else known_value(planner, condition)
    if starts is None or starts.size != 1 or (trips is not None and (bound is None or bound.size != 1)):
        return None
    nodes, carried = _slice(body)
    first = {position: known_value(planner, states[position]) for position in carried if position < len(states)}
    if len(nodes) > MOST_NODES or len(first) < len(carried) or any(array is None for array in first.values()):
        return None
    constants = _constants(planner, body, nodes)
    if constants is None:
        return None
    most = None if bound is None else int(bound.reshape(-1)[0])
    return _counted(body, nodes, first, constants, bool(starts.reshape(-1)[0]), most)


def _slice(body: Graph) -> tuple[list[Node], set[int]]:
    """The nodes that the condition and the states that it depends on are computed by, and the positions of these
    states."""
    producers = {value: node for node in body.nodes for value in node.outputs}
    places = {value: index - 2 for index, value in enumerate(body.inputs)}
    pending, seen, wanted, carried = [body.outputs[0]], set(), set(), set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in producers:
            wanted.add(producers[value])
            pending += [item for item in producers[value].inputs if item is not None]
        elif places.get(value, -1) >= 0:
            carried.add(places[value])
            pending.append(body.outputs[places[value] + 1])
    return [node for node in body.nodes if node in wanted], carried


def _constants(planner: Planner, body: Graph, nodes: list[Node]) -> dict[Value, Any] | None:
    """Loop-invariant inputs of the nodes; None if they are unknown, or a node cannot be evaluated here."""
    made = {value for node in nodes for value in node.outputs} | set(body.inputs)
    weights = planner.weights_of(body)
    found: dict[Value, Any] = {}
    for node in nodes:
        if node.subgraphs or node.op.asks or node.op.compute is None or not node.op.repeatable:
            return None
        for value in node.inputs:
            if value is None or value in made:
                continue
            array = weights[value] if value in weights else known_value(planner, planner.values.get(value))
            if not isinstance(array, np.ndarray) or array.size > 1:
                return None
            found[value] = array
    return found


def _counted(
    body: Graph, nodes: list[Node], states: dict[int, Any], constants: dict[Value, Any], goes_on: bool, most: int | None
) -> int | None:
    count = 0
    while goes_on and (most is None or count < most):
        if count == MOST_ITERATIONS:
            return None
        held = {**constants, body.inputs[0]: np.array(count), body.inputs[1]: np.array(goes_on)}
        held.update((body.inputs[position + 2], array) for position, array in states.items())
        for node in nodes:
            assert node.op.compute is not None
            results = node.op.compute(
                *(None if value is None else held[value] for value in node.inputs), **node.attributes
            )
            held.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False))
        condition = held.get(body.outputs[0], constants.get(body.outputs[0]))
        if not isinstance(condition, np.ndarray | np.generic) or condition.size != 1:
            return None
        goes_on = bool(condition.reshape(-1)[0])
        states = {
            position: np.asarray(held[body.outputs[position + 1]])
            for position in states
            if body.outputs[position + 1] in held
        }
        count += 1
    return count
