"""Layered layout of a graph: each node below the nodes it depends on, few crossings, straight long chains.

The layer of a node is the length of the longest path to it; the order within a layer follows the barycentre of its neighbours (Sugiyama,
Tagawa and Toda 1981), in a fixed number of sweeps. Everything is linear in nodes and edges, apart from the sorting.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.record import dataclass

SWEEPS = 8
WIDTH, HEIGHT = 150, 34
GAP_X, GAP_Y = 26, 40


@dataclass(frozen=True)
class Layout:
    """Where the nodes are: the top left corner of each box, in order; the size of the whole."""

    corners: Sequence[tuple[float, float]]
    width: float
    height: float


def layout(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Places for `count` boxes of WIDTH by HEIGHT; `edges` run from lower to higher numbers (a topological order)."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        above[end].append(start)
        below[start].append(end)
    depth = [0] * count
    for node in range(count):
        depth[node] = max((depth[other] + 1 for other in above[node]), default=0)
    for node in reversed(range(count)):
        if not above[node] and below[node]:
            depth[node] = min(depth[other] for other in below[node]) - 1
    layers: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
    for node in range(count):
        layers[depth[node]].append(node)
    place = _ordered(layers, above, below, count)
    width = max((len(layer) for layer in layers), default=0) * (WIDTH + GAP_X)
    corners = [(place[node], depth[node] * (HEIGHT + GAP_Y)) for node in range(count)]
    left = min((x for x, _ in corners), default=0)
    corners = [(x - left, y) for x, y in corners]
    return Layout(corners, max([width, *(x + WIDTH for x, _ in corners)]), len(layers) * (HEIGHT + GAP_Y))


def _ordered(layers: list[list[int]], above: list[list[int]], below: list[list[int]], count: int) -> list[float]:
    """The x of each node: sweeps down and up, every node as near to the middle of its neighbours as its layer has room."""
    step = WIDTH + GAP_X
    place = [0.0] * count
    for layer in layers:
        for position, node in enumerate(layer):
            place[node] = (position - len(layer) / 2) * step
    for sweep in range(SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            wish = {node: _middle(place, neighbours[node], above, place[node]) for node in layer}
            layer.sort(key=wish.__getitem__)
            _spread(layer, wish, place, step)
    return place


def _middle(place: list[float], neighbours: list[int], above: list[list[int]], fallback: float) -> float:
    """The mean x of the neighbours; those that depend on nothing (constants) follow the others and do not pull at them."""
    pulling = [other for other in neighbours if above[other]] or neighbours
    return sum(place[other] for other in pulling) / len(pulling) if pulling else fallback


def _spread(layer: list[int], wish: dict[int, float], place: list[float], step: float) -> None:
    """Put the nodes of a layer in order, `step` apart at least, with the least squared distance from their wishes.

    Neighbours that would overlap are joined into a group, which stands where its members on average wish (pooled adjacent violators).
    """
    groups: list[tuple[float, int]] = []
    for position, node in enumerate(layer):
        mean, size = wish[node] - position * step, 1
        while groups and groups[-1][0] > mean:
            other, members = groups.pop()
            mean, size = (mean * size + other * members) / (size + members), size + members
        groups.append((mean, size))
    position = 0
    for mean, size in groups:
        for node in layer[position : position + size]:
            place[node] = mean + position * step
            position += 1
