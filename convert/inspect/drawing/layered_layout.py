"""Layered layout of a graph: each node below the nodes it depends on, few crossings, straight long chains.

The layer of a node is the length of the longest path to it (Sugiyama, Tagawa and Toda 1981). An edge over several
layers runs through a waypoint in each of them, and the edges of one node share their waypoints, as branches of one
trunk. The order within a layer follows the barycentre of the neighbours, in a number of sweeps that shrinks with the
graph; items lie as near to the wished positions as they can. Everything is linear in items, apart from sorting.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.base.dataclass import dataclass

WIDTH, HEIGHT = 150, 34
GAP_X, GAP_Y = 26, 40
WAY = 14
"""Width of a waypoint."""
SWEEPS, SETTLING = 12, 6
"""Sweeps that order the layers, and that only move items."""
WORK = 600_000
"""Items that are looked at in sweeps, about."""
MOST_WAYPOINTS = 60_000
STRAIGHT = 8.0
"""How much stronger waypoints of one trunk pull at each other than nodes do."""
STEEP = 12
"""A gap between layers grows by a pixel for so many that an edge in it goes sideways, up to `GROWTH`."""
GROWTH = 70

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Layout of nodes: the top left corner of each box, in order; the size of the drawing.

    Attributes:
        paths: the points of each edge: where it leaves its box, where it enters and leaves each layer, where it ends.
    """

    corners: Sequence[Point]
    width: float
    height: float
    paths: Sequence[Sequence[Point]] = ()


def layout(count: int, edges: Sequence[tuple[int, int]], boxes: Sequence[Point] | None = None) -> Layout:
    """Positions of `count` boxes.

    Args:
        edges: from lower to higher numbers (a topological order).
        boxes: width and height of each, WIDTH by HEIGHT where None.
    """
    if not count:
        return Layout([], 0, 0, [])
    return _Layers(count, edges, boxes or [(WIDTH, HEIGHT)] * count).placed()


class _Layers:
    """The items of a layout: nodes, and after them waypoints."""

    def __init__(self, count: int, edges: Sequence[tuple[int, int]], boxes: Sequence[Point]) -> None:
        self.count, self.edges, self.boxes = count, edges, boxes
        self.depth = _depths(count, edges)
        self.width = [box[0] for box in boxes]
        self.above: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self.below: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self.trunks: dict[int, list[int]] = {}
        self._connect()
        self.layers: list[list[int]] = [[] for _ in range(max(self.depth) + 1)]
        for item in range(len(self.depth)):
            self.layers[self.depth[item]].append(item)
        self.centre = [0.0] * len(self.depth)

    def _connect(self) -> None:
        """Waypoints and neighbours; the longest edges run straight where there would be too many waypoints."""
        reach: dict[int, int] = {}
        for start, end in self.edges:
            reach[start] = max(reach.get(start, 0), self.depth[end])
        free = MOST_WAYPOINTS
        for start, last in sorted(reach.items(), key=lambda item: item[1] - self.depth[item[0]]):
            length = last - self.depth[start] - 1
            if 0 < length <= free:
                free -= length
                self.trunks[start] = [self._waypoint(start, step) for step in range(1, length + 1)]
        for start, trunk in self.trunks.items():
            for one, other in zip([start, *trunk], trunk, strict=False):
                self._join(one, other, 2.0 if one < self.count else STRAIGHT)
        for start, end in set(self.edges):
            way = self._way(start, end)
            last = way[-1] if way else start
            if self.depth[end] - self.depth[last] == 1:
                self._join(last, end, 2.0 if way else 1.0)

    def _waypoint(self, start: int, step: int) -> int:
        self.depth.append(self.depth[start] + step)
        self.width.append(WAY)
        self.above.append([])
        self.below.append([])
        return len(self.depth) - 1

    def _join(self, upper: int, lower: int, weight: float) -> None:
        self.below[upper].append((lower, weight))
        self.above[lower].append((upper, weight))

    def _way(self, start: int, end: int) -> list[int]:
        """The waypoints of an edge."""
        return self.trunks.get(start, [])[: self.depth[end] - self.depth[start] - 1]

    def placed(self) -> Layout:
        """Order, positions and paths."""
        for layer in self.layers:
            at = -sum(self.width[item] + GAP_X for item in layer) / 2
            for item in layer:
                self.centre[item] = at + self.width[item] / 2
                at += self.width[item] + GAP_X
        share = WORK // len(self.depth)
        for sweep in range(max(2, min(SWEEPS, share))):
            self._sweep(down=sweep % 2 == 0, sort=True)
        for sweep in range(max(2, min(SETTLING, share))):
            self._sweep(down=sweep % 2 == 1, sort=False)
        return self._layout()

    def _sweep(self, down: bool, sort: bool) -> None:
        """Every item as near to its neighbours as its layer has room: those above on the way down, else those below."""
        for layer in self.layers if down else reversed(self.layers):
            wishes, weights = {}, {}
            for item in layer:
                near = self.above[item] if down else self.below[item]
                pulling = [pair for pair in near if self.above[pair[0]]] or near
                if not sort:
                    pulling = [*self.above[item], *self.below[item]]
                weight = sum(each for _, each in pulling)
                wishes[item] = (
                    sum(self.centre[other] * each for other, each in pulling) / weight if weight else self.centre[item]
                )
                weights[item] = weight or 0.1
            if sort:
                layer.sort(key=wishes.__getitem__)
            self._spread(layer, wishes, weights)

    def _spread(self, layer: list[int], wishes: dict[int, float], weights: dict[int, float]) -> None:
        """Put the items of a layer in order without overlaps, with the least squared distance from their wishes.

        Neighbours that would overlap are joined into a group, which stands where its members on average wish (pooled
        adjacent violators).
        """
        offsets: list[float] = []
        at = before = 0.0
        for item in layer:
            half = self.width[item] / 2
            at += (before + half + (GAP_X if before else 0)) if offsets else 0.0
            offsets.append(at)
            before = half
        groups: list[tuple[float, float, int]] = []
        for item, offset in zip(layer, offsets, strict=True):
            mean, weight, size = wishes[item] - offset, weights[item], 1
            while groups and groups[-1][0] > mean:
                other, heavy, members = groups.pop()
                mean = (mean * weight + other * heavy) / (weight + heavy)
                weight, size = weight + heavy, size + members
            groups.append((mean, weight, size))
        position = 0
        for mean, _, size in groups:
            for index in range(position, position + size):
                self.centre[layer[index]] = mean + offsets[index]
            position += size

    def _layout(self) -> Layout:
        left = min(centre - width / 2 for centre, width in zip(self.centre, self.width, strict=True))
        centre = [round(each - left, 1) for each in self.centre]
        tops, bottoms = self._heights(centre)
        corners = [
            (centre[node] - self.boxes[node][0] / 2, self._top(node, tops, bottoms)) for node in range(self.count)
        ]
        width = max(x + each for x, each in zip(centre, (width / 2 for width in self.width), strict=True))
        return Layout(corners, round(width, 1), round(bottoms[-1] + GAP_Y, 1), self._paths(centre, tops, bottoms))

    def _top(self, node: int, tops: list[float], bottoms: list[float]) -> float:
        """Boxes stand in the middle of their layer."""
        layer = self.depth[node]
        return round((tops[layer] + bottoms[layer] - self.boxes[node][1]) / 2, 1)

    def _heights(self, centre: list[float]) -> tuple[list[float], list[float]]:
        """Top and bottom of each layer; gaps are higher where edges go far sideways."""
        tops, bottoms, y = [], [], 0.0
        for layer in self.layers:
            height = max((self.boxes[item][1] for item in layer if item < self.count), default=0.0)
            tops.append(y)
            bottoms.append(y + height)
            far = max((abs(centre[item] - centre[other]) for item in layer for other, _ in self.below[item]), default=0)
            y += height + GAP_Y + min(GROWTH, far / STEEP)
        return tops, bottoms

    def _paths(self, centre: list[float], tops: list[float], bottoms: list[float]) -> list[list[Point]]:
        """The points of every edge; several edges meet a box side by side, in the order in which they come in."""
        first = [self._way(start, end) for start, end in self.edges]
        out: dict[int, list[int]] = {}
        into: dict[int, list[int]] = {}
        for number, (start, end) in enumerate(self.edges):
            out.setdefault(start, []).append(number)
            into.setdefault(end, []).append(number)
        leaves, enters = [0.0] * len(self.edges), [0.0] * len(self.edges)
        for start, numbers in out.items():
            heads = {number: first[number][0] if first[number] else self.edges[number][1] for number in numbers}
            targets = sorted(set(heads.values()), key=centre.__getitem__)
            ports = dict(zip(targets, self._ports(start, len(targets), centre), strict=True))
            for number, head in heads.items():
                leaves[number] = ports[head]
        for end, numbers in into.items():
            numbers.sort(key=lambda number: centre[first[number][-1] if first[number] else self.edges[number][0]])
            for number, port in zip(numbers, self._ports(end, len(numbers), centre), strict=True):
                enters[number] = port
        paths: list[list[Point]] = []
        for number, (start, end) in enumerate(self.edges):
            path = [(leaves[number], self._top(start, tops, bottoms) + self.boxes[start][1])]
            for way in first[number]:
                path += [(centre[way], tops[self.depth[way]]), (centre[way], bottoms[self.depth[way]])]
            paths.append([*path, (enters[number], self._top(end, tops, bottoms))])
        return [[(round(x, 1), round(y, 1)) for x, y in path] for path in paths]

    def _ports(self, node: int, count: int, centre: list[float]) -> list[float]:
        """The x of `count` edges along a side of a box."""
        room = min(self.boxes[node][0] * 0.6, 18.0 * (count - 1))
        return [centre[node] + (room * (index / (count - 1) - 0.5) if count > 1 else 0.0) for index in range(count)]


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each node: the longest path to it; what depends on nothing stands above the first that needs it."""
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
    return depth
