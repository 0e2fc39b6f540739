"""Line searches: how far to go along a direction (Nocedal and Wright, Numerical Optimization, 2006, section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SUFFICIENT, CURVATURE = 1e-4, 0.9
"""Shares of the first slope: a step is long enough if the loss falls by the first one of what the slope promises, and
if the second one is left of the slope at most."""
MOST = 25
"""Evaluations of a search."""
LEAST_GROWTH, MOST_GROWTH = 0.01, 10.0
"""By how much of the last step the next one is longer, and how many times as long it is."""
MARGIN = 0.1
"""Share of an interval next to its ends in which no second point in a row is tried."""


@dataclass(frozen=True)
class Point:
    """A point on the line.

    Attributes:
        length: of the step to it, in directions.
        gradient: of the loss there; slope: the same along the direction.
    """

    length: float
    loss: float
    gradient: np.ndarray
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, length: float, size: float, tolerance: float
) -> tuple[Point, int]:
    """A point that meets the strong Wolfe conditions, or the best one found, and the number of evaluations.

    Args:
        evaluate: gives the point of a step of some length.
        start: of length 0, from where the slope is negative; length: of the first step that is tried.
        size: the largest change of a parameter in a step of length 1; an interval in which all changes are smaller
            than `tolerance` is not searched.
    """
    before, now, tried = start, evaluate(length), 1
    ends: list[Point] | None = None
    while tried <= MOST:
        if _is_high(now, start) or (tried > 2 and now.loss >= before.loss):
            ends = [before, now]
        elif abs(now.slope) <= -CURVATURE * start.slope:
            return now, tried
        elif now.slope >= 0:
            ends = [before, now]
        if ends is not None:
            break
        bounds = (now.length + LEAST_GROWTH * (now.length - before.length), MOST_GROWTH * now.length)
        before, now = now, evaluate(_lowest(before, now, bounds))
        tried += 1
    return _between(evaluate, start, ends or [start, now], tried, tolerance / size)


def _is_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + SUFFICIENT * point.length * start.slope


def _between(
    evaluate: Callable[[float], Point], start: Point, ends: list[Point], tried: int, shortest: float
) -> tuple[Point, int]:
    """The same in an interval that has such a point."""
    near = False
    low = 0 if ends[0].loss <= ends[1].loss else 1
    while tried <= MOST and abs(ends[1].length - ends[0].length) >= shortest:
        first, last = sorted(point.length for point in ends)
        length = _lowest(ends[0], ends[1], (first, last))
        margin = MARGIN * (last - first)
        if min(last - length, length - first) < margin:
            if near or length >= last or length <= first:
                length = last - margin if abs(length - last) < abs(length - first) else first + margin
                near = False
            else:
                near = True
        else:
            near = False
        now = evaluate(length)
        tried += 1
        if _is_high(now, start) or now.loss >= ends[low].loss:
            ends[1 - low] = now
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        if abs(now.slope) <= -CURVATURE * start.slope:
            return now, tried
        if now.slope * (ends[1 - low].length - ends[low].length) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = now
    return ends[low], tried


def _lowest(one: Point, other: Point, bounds: tuple[float, float]) -> float:
    """Argument of the minimum of a cubic, given two losses and their derivatives, within bounds; their middle if it has
    no minimum."""
    left, right = (one, other) if one.length <= other.length else (other, one)
    bend = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.length - other.length)
    square = bend * bend - one.slope * other.slope
    if square < 0:
        return (bounds[0] + bounds[1]) / 2
    root = math.sqrt(square)
    share = (right.slope + root - bend) / (right.slope - left.slope + 2 * root)
    return min(max(right.length - (right.length - left.length) * share, bounds[0]), bounds[1])
