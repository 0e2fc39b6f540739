"""Activation ranges over many runs, in constant memory.

Each value keeps its extremes and a histogram of 4,096 bins around zero, whose reach doubles when a larger value comes;
neighbouring bins are then added up. Methods: minmax; percentile (both tails cut); mse (the range whose rounding to 255
steps has the least squared error on the histogram); entropy (the threshold whose rounded histogram has the least
Kullback-Leibler divergence from the values', after Migacz, "8-bit Inference with TensorRT", GTC 2017).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

BINS = 4096
LEVELS = 255
PERCENTILE = 99.99
LITTLE = 1e-4
"""Probability that `entropy` gives to values beyond the threshold where the bin that they are put into is empty
otherwise."""
SHRINKS = 64
"""Narrower ranges that `mse` tries, evenly spaced."""


@dataclass
class Observed:
    """The observed range of one value. NaN and infinities are counted, and left out."""

    low: float = 0.0
    high: float = 0.0
    reach: float = 0.0
    odd: int = 0
    counts: np.ndarray = field(default_factory=lambda: _empty())

    def add(self, array: np.ndarray) -> None:
        """Update the range with the values of one run."""
        import numpy

        flat = numpy.asarray(array, numpy.float32).reshape(-1)
        finite = flat[numpy.isfinite(flat)]
        self.odd += flat.size - finite.size
        if not finite.size:
            return
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        self._widen(max(-self.low, self.high))
        if self.reach:
            self.counts += numpy.histogram(finite, BINS, (-self.reach, self.reach))[0]
        else:
            self.counts[BINS // 2] += finite.size

    def _widen(self, needed: float) -> None:
        if not self.reach:
            self.reach = needed
        while self.reach < needed:
            self.counts[:] = _halved(self.counts)
            self.reach *= 2

    def join(self, part: Tally) -> None:
        """See the values of further runs, which another process counted: as if `add` had been called with each."""
        self.odd += part.odd
        self.low, self.high = min(self.low, part.low), max(self.high, part.high)
        for level, counted in part.levels.items():
            self._widen(part.base * 2.0**level)
            shift = round(math.log2(self.reach / part.base)) if part.base else 0
            for finer, (counts, top) in counted.items():
                self._add_counts(counts, top, shift - finer)

    def _add_counts(self, counts: np.ndarray, top: int, halvings: int) -> None:
        """Add a histogram whose reach is `halvings` times half of this one's; `top` values equal its reach, which the
        last bin includes, and are in the next bin of a wider histogram."""
        if not halvings:
            self.counts += counts
            return
        counts = counts.copy()
        counts[-1] -= top
        for _ in range(halvings):
            counts = _halved(counts)
        counts[BINS // 2 + (BINS // 2 >> halvings)] += top
        self.counts += counts

    @functools.cached_property
    def centres(self) -> np.ndarray:
        """The middle of each bin, once everything has been seen."""
        import numpy

        return (numpy.arange(BINS) + 0.5) * (2 * self.reach / BINS) - self.reach


@dataclass
class Tally:
    """The values of some runs, counted so that `Observed.join` finds what it had found itself.

    Attributes:
        base: the reach of a histogram that begins; 0 if it is not known.
        levels: by the doublings of `base` that the values so far need, and by those that a run alone needs: the
            histogram of the run's values, and how many equal its reach.
        unknown: whether a value other than 0 was seen without a base.
    """

    base: float
    low: float = 0.0
    high: float = 0.0
    odd: int = 0
    levels: dict[int, dict[int, tuple[np.ndarray, int]]] = field(default_factory=dict)
    unknown: bool = False

    def add(self, array: np.ndarray) -> None:
        """See the values of one run."""
        import numpy

        flat = numpy.asarray(array, numpy.float32).reshape(-1)
        finite = flat[numpy.isfinite(flat)]
        self.odd += flat.size - finite.size
        if not finite.size:
            return
        low, high = min(0.0, float(finite.min())), max(0.0, float(finite.max()))
        self.low, self.high = min(self.low, low), max(self.high, high)
        if not self.base:
            self.unknown |= self.low < 0 or self.high > 0
            counts = _empty()
            counts[BINS // 2] = finite.size
            self._count(0, 0, counts, 0)
            return
        finer = _doublings(self.base, max(-low, high))
        reach = self.base * 2.0**finer
        counts = numpy.histogram(finite, BINS, (-reach, reach))[0]
        top = int(numpy.count_nonzero(finite == reach))
        self._count(_doublings(self.base, max(-self.low, self.high)), finer, counts, top)

    def _count(self, level: int, finer: int, counts: np.ndarray, top: int) -> None:
        counted = self.levels.setdefault(level, {})
        before, others = counted.get(finer, (0, 0))
        counted[finer] = before + counts, others + top


def _doublings(reach: float, needed: float) -> int:
    """How often a reach is doubled until it is at least what is needed."""
    count = 0
    while reach < needed:
        reach, count = reach * 2, count + 1
    return count


def _halved(counts: np.ndarray) -> np.ndarray:
    """The histogram of twice the reach."""
    found = _empty()
    found[BINS // 4 : BINS // 4 * 3] = counts.reshape(-1, 2).sum(axis=1)
    return found


def _empty() -> np.ndarray:
    import numpy

    return numpy.zeros(BINS, numpy.int64)


def minmax(seen: Observed) -> tuple[float, float]:
    """From the least to the greatest value."""
    return seen.low, seen.high


def percentile(seen: Observed) -> tuple[float, float]:
    """The range that leaves out a ten-thousandth of the values at either end."""
    import numpy

    total = numpy.cumsum(seen.counts)
    if not seen.reach:
        return seen.low, seen.high
    tail = (100 - PERCENTILE) / 100 * total[-1]
    low = seen.centres[int(numpy.searchsorted(total, tail, side="right"))]
    high = seen.centres[int(numpy.searchsorted(total, total[-1] - tail))]
    return max(seen.low, min(0.0, float(low))), min(seen.high, max(0.0, float(high)))


def mse(seen: Observed) -> tuple[float, float]:
    """The range, shrunk on both sides alike, whose rounding loses least."""
    import numpy

    best, least = (seen.low, seen.high), numpy.inf
    for part in numpy.linspace(1, 0.25, SHRINKS):
        low, high = seen.low * part, seen.high * part
        step = (high - low) / LEVELS or 1
        rounded = numpy.clip(numpy.rint((seen.centres - low) / step), 0, LEVELS) * step + low
        loss = float((seen.counts * (seen.centres - rounded) ** 2).sum())
        if loss < least:
            best, least = (float(low), float(high)), loss
    return best


def entropy(seen: Observed) -> tuple[float, float]:
    """The threshold, the same on both sides, whose histogram in 128 levels is closest to the values' own."""
    import numpy

    if not seen.reach:
        return seen.low, seen.high
    counts = (seen.counts[BINS // 2 :] + seen.counts[: BINS // 2][::-1]).astype(numpy.float64)
    best, least = len(counts), numpy.inf
    for stop in range(128, len(counts) + 1, 8):
        truth = counts[:stop].copy()
        truth[-1] += counts[stop:].sum()
        found = _divergence(truth, counts[:stop])
        if found < least:
            best, least = stop, found
    threshold = best * seen.reach / len(counts)
    return max(seen.low, -threshold), min(seen.high, threshold)


def _divergence(truth: np.ndarray, kept: np.ndarray) -> float:
    """Kullback-Leibler divergence of `kept` in 128 levels from `truth`; what only `truth` has counts as if `kept` had a
    little of it."""
    import numpy

    level = numpy.arange(len(kept)) * 128 // len(kept)
    full = kept > 0
    sums = numpy.bincount(level, kept, 128)
    bins = numpy.bincount(level, full, 128)
    spread = numpy.where(full, (sums / numpy.maximum(bins, 1))[level], 0)
    p, q = truth / max(truth.sum(), 1), spread / max(spread.sum(), 1)
    some = p > 0
    return float((p[some] * numpy.log(p[some] / numpy.maximum(q[some], LITTLE))).sum())


METHODS: dict[str, Callable[[Observed], tuple[float, float]]] = {
    "minmax": minmax,
    "percentile": percentile,
    "mse": mse,
    "entropy": entropy,
}
