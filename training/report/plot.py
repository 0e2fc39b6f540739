"""Curves of metrics over epochs, drawn with Pillow."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.system_error import write_error
from ...runtime.plugin.optional_package import optional_package

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 80, 220, 30, 50
"""Pixels around the curves: values, names, nothing, epochs."""
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
TICKS = 5
LOSS = "loss"
"""Part of the names of losses."""


def plot(curves: Mapping[str, Sequence[float]], path: str | os.PathLike[str], first: int = 1) -> None:
    """Draw curves into a picture, whose suffix says the format: losses, and below them other metrics.

    Args:
        curves: values by name; those that are not finite leave gaps.
        first: number of the first value's epoch.

    Raises UsageError without a finite value, FileAccessError if the picture cannot be written.
    """
    Image, ImageDraw, ImageFont = (  # noqa: N806
        optional_package(f"PIL.{name}", "drawing") for name in ("Image", "ImageDraw", "ImageFont")
    )
    panels = [panel for panel in _panels(curves) if any(map(math.isfinite, itertools.chain(*panel.values())))]
    if not panels:
        raise UsageError("E-TRAIN-PLOT", None, "there is no value to draw", hint="Call fit() first")
    picture = Image.new("RGB", (WIDTH, HEIGHT * len(panels)), "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(15)
    for number, panel in enumerate(panels):
        _draw(draw, font, panel, first, HEIGHT * number)
    try:
        picture.save(Path(path))
    except OSError as error:
        raise write_error(path, error) from error
    except ValueError as error:
        why = f"{Path(path).suffix!r} is not the suffix of a picture"
        raise UsageError("E-TRAIN-PLOT", os.fspath(path), why, expected=".png, .jpg, .webp") from error


def _panels(curves: Mapping[str, Sequence[float]]) -> list[dict[str, Sequence[float]]]:
    """Losses, and all other metrics, which have an axis of their own."""
    return [{name: curve for name, curve in curves.items() if (LOSS in name) is losses} for losses in (True, False)]


def _draw(draw: Any, font: Any, curves: Mapping[str, Sequence[float]], first: int, top: int) -> None:
    """Draw curves with one axis, `top` pixels below the picture's upper edge."""
    finite = [value for curve in curves.values() for value in curve if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - 0.5, high + 0.5
    place = _Place(low, high, max(map(len, curves.values())), top)
    _axes(draw, font, place, first)
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        for points in _runs([(index, value) for index, value in enumerate(curve)]):
            at = [place(*point) for point in points]
            if len(at) > 1:
                draw.line(at, color, 2, "curve")
            for x, y in at:
                draw.ellipse((x - 2, y - 2, x + 2, y + 2), color)
        y = top + TOP + 22 * number
        draw.line((WIDTH - RIGHT + 15, y + 9, WIDTH - RIGHT + 40, y + 9), color, 3)
        draw.text((WIDTH - RIGHT + 48, y), name, "black", font)


class _Place:
    """Position at which a value of an epoch is drawn."""

    def __init__(self, low: float, high: float, count: int, top: int) -> None:
        self.top = top
        self.low = low
        self.high = high
        self.count = count

    def __call__(self, index: float, value: float) -> tuple[float, float]:
        across = index / max(1, self.count - 1)
        up = (value - self.low) / (self.high - self.low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), self.top + HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def _axes(draw: Any, font: Any, place: _Place, first: int) -> None:
    left, bottom = place(0, place.low)
    right, top = place(max(1, place.count - 1), place.high)
    for tick in range(TICKS + 1):
        value = place.low + (place.high - place.low) * tick / TICKS
        _, y = place(0, value)
        draw.line((left, y, right, y), "#e0e0e0")
        draw.text((LEFT - 8, y), f"{value:.3g}", "black", font, "rm")
    step = max(1, round((place.count - 1) / (2 * TICKS)))
    for index in range(0, place.count, step):
        x, _ = place(index, place.low)
        draw.text((x, bottom + 8), str(index + first), "black", font, "mt")
    draw.line((left, top, left, bottom, right, bottom), "black")
    draw.text(((left + right) / 2, place.top + HEIGHT - 18), "epoch", "black", font, "mt")


def _runs(points: Sequence[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    """The points without gaps between them."""
    runs: list[list[tuple[int, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
