"""Test-case reduction: shrinks a failing model to the smallest part that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.extract_subgraph import extract

Fails = Callable[[Graph], bool]


def reduce(graph: Graph, fails: Fails, told: Callable[[str], object]) -> Graph:
    """A part of `graph` that fails by itself: first the shortest beginning, then as few nodes before it as possible.

    Args:
        fails: whether a graph shows the failure; a part that cannot be run at all does not.
        told: is given one line for each step.
    """
    names = [value.name for node in graph.nodes for value in node.outputs if value.name]
    low, high = 0, len(names) - 1
    while low < high:
        middle = (low + high) // 2
        failed = fails(extract(graph, [], [names[middle]]))
        told(f"up to {names[middle]!r}: {'fails' if failed else 'works'}")
        low, high = (low, middle) if failed else (middle + 1, high)
    end = names[low]
    best = extract(graph, [], [end])
    while len(best.nodes) > 1:
        shorter = _shorter(best, end, fails, told)
        if shorter is None:
            break
        best = shorter
    return best


def _shorter(graph: Graph, end: str, fails: Fails, told: Callable[[str], object]) -> Graph | None:
    """The part that begins later and still fails, cut at the values that the last nodes read."""
    for keep in _sizes(len(graph.nodes)):
        tail = graph.nodes[-keep:]
        made = {value for node in tail for value in node.outputs}
        cut = [
            value.name
            for node in tail
            for value in node.inputs
            if value is not None and value not in made and value.producer is not None
        ]
        part = extract(graph, list(dict.fromkeys(cut)), [end])
        if len(part.nodes) < len(graph.nodes) and fails(part):
            told(f"the last {counted(len(part.nodes), 'node')}: fail")
            return part
    return None


def _sizes(count: int) -> Sequence[int]:
    """Numbers of nodes to try, few first: 1, 2, 4 ... below `count`."""
    return [1 << power for power in range(count.bit_length()) if 1 << power < count]
