"""Text regions: rotated boxes around words, from the score maps of CRAFT.

Source: `getDetBoxes_core` of CRAFT (Baek et al. 2019), as EasyOCR has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...runtime.base.dataclass import dataclass
from .connected_regions import regions

SMALLEST = 10
"""Positions of the map that a region has at least."""
SQUARE = 0.1
"""Maximum difference of the edges of a box that is made upright."""


@dataclass(frozen=True)
class Thresholds:
    """Score thresholds.

    Attributes:
        text: the best region score of a region.
        low: the region scores of the positions of a region.
        link: affinity scores of positions that join characters.
    """

    text: float = 0.7
    low: float = 0.4
    link: float = 0.4


def text_regions(region: np.ndarray, affinity: np.ndarray, limits: Thresholds) -> tuple[np.ndarray, np.ndarray]:
    """The regions of text in maps [height, width] in reading order of their first positions.

    Returns:
        f32 [count, 4, 2]: corners x, y in places of the map, clockwise, that with the least sum first; and f32 [count]:
        the best region score of each.
    """
    text, link = region > limits.low, affinity > limits.link
    boxes, scores = [], []
    for rows, columns, member in components(text | link):
        score = float(region[rows, columns][member].max())
        count = int(member.sum())
        letters = member & text[rows, columns]
        if count < SMALLEST or score < limits.text or not letters.any():
            continue
        height, width = member.shape
        growth = int(math.sqrt(count * min(width, height) / (width * height)) * 2)
        top, left = max(0, rows.start - growth), max(0, columns.start - growth)
        grown = _dilated(letters, growth, (rows.start - top, columns.start - left))
        inside = grown[: region.shape[0] - top, : region.shape[1] - left]
        boxes.append(_box(inside) + np.array([left, top]))
        scores.append(score)
    return np.array(boxes, np.float32).reshape(-1, 4, 2), np.array(scores, np.float32)


def components(mask: np.ndarray) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """The parts of a mask [height, width] that are connected by edges of positions, in the order of their first pixels:
    rows and columns that hold one, and the mask of it there."""
    numbers, areas = regions(mask, corners=False)
    y, x = np.nonzero(mask)
    order = np.argsort(numbers[y, x], kind="stable")
    ends = np.cumsum(areas)
    for start, end in zip(ends - areas, ends, strict=True):
        rows, columns = y[order[start:end]], x[order[start:end]]
        top, left = int(rows[0]), int(columns.min())
        member = np.zeros((int(rows[-1]) + 1 - top, int(columns.max()) + 1 - left), bool)
        member[rows - top, columns - left] = True
        yield slice(top, top + member.shape[0]), slice(left, left + member.shape[1]), member


def _dilated(mask: np.ndarray, growth: int, margin: tuple[int, int]) -> np.ndarray:
    """The mask dilated by a square of ``growth + 1``, with `margin` rows above and columns to the left; of an even
    square the longer half lies below and to the right, as in OpenCV."""
    behind = (growth + 1) // 2
    found = np.zeros((margin[0] + mask.shape[0] + behind, margin[1] + mask.shape[1] + behind), bool)
    y, x = np.nonzero(mask)
    for shift in range(behind - growth, behind + 1):
        found[np.maximum(y + margin[0] + shift, 0), x + margin[1]] = True
    y, x = np.nonzero(found)
    for shift in range(behind - growth, behind + 1):
        found[y, np.maximum(x + shift, 0)] = True
    return found


def _box(mask: np.ndarray) -> np.ndarray:
    """The corners [4, 2] of the smallest rectangle around the positions of a mask, upright if nearly square."""
    rows = np.flatnonzero(mask.any(1))
    left, right = mask[rows].argmax(1), mask.shape[1] - 1 - mask[rows, ::-1].argmax(1)
    corners = least_rectangle(np.stack([np.concatenate([left, right]), np.concatenate([rows, rows])], 1))
    edges = np.linalg.norm(corners[0] - corners[1]), np.linalg.norm(corners[1] - corners[2])
    if abs(1 - max(edges) / (min(edges) + 1e-5)) <= SQUARE:
        x0, x1, y0, y1 = left.min(), right.max(), rows[0], rows[-1]
        corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)
    return np.roll(corners, -int(corners.sum(1).argmin()), 0)


def least_rectangle(points: np.ndarray) -> np.ndarray:
    """The corners [4, 2] of the rectangle of the least area around points [count, 2], clockwise where y points down.
    One of its edges lies on an edge of the convex hull."""
    hull = _hull(points)
    edges = np.roll(hull, -1, 0) - hull
    lengths = np.linalg.norm(edges, axis=1, keepdims=True)
    along = edges / lengths if len(hull) > 1 else np.array([[1.0, 0.0]])
    across = np.stack([-along[:, 1], along[:, 0]], 1)
    ends = [(values.min(1), values.max(1)) for values in (along @ hull.T, across @ hull.T)]
    best = int(np.prod([high - low for low, high in ends], 0).argmin())
    (x0, x1), (y0, y1) = ((low[best], high[best]) for low, high in ends)
    return np.array([along[best] * x + across[best] * y for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))])


def _hull(points: np.ndarray) -> np.ndarray:
    """The convex hull of points [count, 2]; monotone chain (Andrew 1979)."""
    ordered = np.unique(points, axis=0).tolist()
    chains: list[list[list[float]]] = []
    for sequence in (ordered, ordered[::-1]):
        chain: list[list[float]] = []
        for point in sequence:
            while len(chain) > 1 and _signed_area(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        chains.append(chain)
    return np.array(chains[0][:-1] + chains[1][:-1] or ordered, np.float64)


def _signed_area(one: list[float], other: list[float], third: list[float]) -> float:
    """Twice the signed area of a triangle."""
    return (other[0] - one[0]) * (third[1] - one[1]) - (other[1] - one[1]) * (third[0] - one[0])


__all__ = ["Thresholds", "components", "least_rectangle", "text_regions"]
