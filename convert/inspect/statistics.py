"""Statistics of a tensor or a slice: range, moments, special values and a histogram, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ..console.progress import ignored
from . import tensor_values

if TYPE_CHECKING:
    import numpy as np

    from .selection import Selection

BINS = 12


@dataclass
class Statistics:
    """Statistics of the finite values, and counts of special ones. Complex numbers count by their magnitude.

    Attributes:
        count: all values; finite, nan, inf, zeros: how many are that.
        min, max, mean, std: of the finite values, None without finite values; std is that of the population.
        edges, counts: histogram of the finite values, `edges` one longer than `counts`.
    """

    count: int = 0
    finite: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    edges: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


def statistics(selection: Selection, advance: Callable[[int], object] = ignored) -> Statistics:
    """The statistics of the selected values; `advance` is called with the bytes of values that were looked at, each
    twice."""
    plain = selection.plain()
    found = Statistics()
    _measure(found, _numbers(tensor_values.parts(plain, selection.axes), advance))
    if found.min is not None and found.max is not None:
        _count(found, found.min, found.max, _numbers(tensor_values.parts(plain, selection.axes), advance))
    return found


def _numbers(parts: Iterable[np.ndarray], advance: Callable[[int], object]) -> Iterable[np.ndarray]:
    import numpy

    for part in parts:
        values = tensor_values.wide(part)
        yield numpy.abs(values) if values.dtype.kind == "c" else values
        advance(part.nbytes)


def _measure(found: Statistics, parts: Iterable[np.ndarray]) -> None:
    """Range, counts, mean and deviation, merged part by part (Chan, Golub and LeVeque 1979)."""
    import numpy

    mean, spread = 0.0, 0.0
    for part in parts:
        kept = part[numpy.isfinite(part)]
        found.count += part.size
        found.nan += int(numpy.isnan(part).sum())
        found.zeros += int((part == 0).sum())
        if not kept.size:
            continue
        low, high = (int(end) if end.dtype == numpy.longdouble else float(end) for end in (kept.min(), kept.max()))
        found.min = low if found.min is None else min(found.min, low)
        found.max = high if found.max is None else max(found.max, high)
        with numpy.errstate(all="ignore"):
            here = float(kept.mean())
            gap, total = here - mean, found.finite + kept.size
            spread += float(((kept - here) ** 2).sum()) + gap * gap * found.finite * kept.size / total
        mean += gap * kept.size / total
        found.finite = total
    found.inf = found.count - found.finite - found.nan
    if found.finite:
        found.mean, found.std = mean, math.sqrt(spread / found.finite)


def _count(found: Statistics, low: float, high: float, parts: Iterable[np.ndarray]) -> None:
    import numpy

    low, high = float(low), float(high)
    if not math.isfinite(high - low):
        return
    bins = BINS if high > low else 1
    counts = numpy.zeros(bins, numpy.int64)
    for part in parts:
        kept = part[numpy.isfinite(part)].astype(numpy.float64)
        places = (
            ((kept - low) * (bins / (high - low))).astype(numpy.int64)
            if bins > 1
            else numpy.zeros(kept.size, numpy.int64)
        )
        counts += numpy.bincount(numpy.clip(places, 0, bins - 1), minlength=bins)
    found.edges = [low + (high - low) * edge / bins for edge in range(bins)] + [high]
    found.counts = counts.tolist()
