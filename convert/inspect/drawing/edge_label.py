"""Edge labels: each at the first position along its path where it covers neither a box nor another label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....runtime.base.dataclass import dataclass
from .layered_layout import Point

CHARACTER, LINE = 5.9, 13.0
"""Width of a character and height of a line of labels."""
CELL = 128.0
"""Side of the squares by which what lies near is found."""
STEPS = (0.5, 0.3, 0.7, 0.15, 0.85)
"""Candidate positions of a label on a piece of a path."""
PIECES = 24
"""Pieces of a path that are tried."""
NEAR = 400.0
"""Labels of the same value stand further apart."""


@dataclass(frozen=True)
class Area:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Area) -> bool:
        """Whether the two have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def cells(self) -> Iterator[tuple[int, int]]:
        """Column and row of each grid square that the rectangle touches."""
        for column in range(int(self.left // CELL), int(self.right // CELL) + 1):
            for row in range(int(self.top // CELL), int(self.bottom // CELL) + 1):
                yield column, row


class _Taken:
    """Areas that are already covered."""

    def __init__(self, areas: Sequence[Area]) -> None:
        self.cells: dict[tuple[int, int], list[Area]] = {}
        for area in areas:
            self.add(area)

    def add(self, area: Area) -> None:
        for cell in area.cells():
            self.cells.setdefault(cell, []).append(area)

    def free(self, area: Area) -> bool:
        return not any(area.meets(other) for cell in area.cells() for other in self.cells.get(cell, ()))


def labels(
    paths: Sequence[Sequence[Point]], texts: Sequence[str], values: Sequence[str], boxes: Sequence[Area]
) -> list[Point | None]:
    """The centre of the label of each path; None if it does not fit, or the same value has a label nearby.

    Args:
        texts: what the labels say; values: whose they are.
        boxes: what they may not cover.
    """
    taken = _Taken(boxes)
    told: dict[str, list[Point]] = {}
    found: list[Point | None] = []
    for path, text, value in zip(paths, texts, values, strict=True):
        half = len(text) * CHARACTER / 2 + 2
        place = None
        for x, y in _places(path) if text else ():
            if any(abs(x - other) + abs(y - high) < NEAR for other, high in told.get(value, ())):
                break
            area = Area(x - half, y - LINE / 2, x + half, y + LINE / 2)
            if taken.free(area):
                taken.add(area)
                told.setdefault(value, []).append((x, y))
                place = round(x, 1), round(y, 1)
                break
        found.append(place)
    return found


def _places(path: Sequence[Point]) -> Iterator[Point]:
    """Points on the curves of a path: in the gaps between layers, where `curve` of the page draws them."""
    for (x1, y1), (x2, y2) in list(zip(path[::2], path[1::2], strict=False))[:PIECES]:
        for t in STEPS:
            bend = 3 * t * t * (1 - t) + t**3
            yield x1 + (x2 - x1) * bend, y1 + (y2 - y1) * (1.5 * t * (1 - t) ** 2 + 1.5 * t * t * (1 - t) + t**3)
