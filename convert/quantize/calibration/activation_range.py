"""Activation ranges over many runs, in constant memory.

Each value keeps its extremes and a histogram of 4,096 bins around zero, whose reach doubles when a larger value comes;
neighbouring bins are then added up. Methods: minmax; percentile (both tails cut); mse (the range whose rounding to 255
steps has the least squared error on the histogram); entropy (the threshold whose rounded histogram has the least
Kullback-Leibler divergence from the values', after Migacz, "8-bit Inference with TensorRT", GTC 2017).
"""

from __future__ import annotations

import functools
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
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[BINS // 4 : BINS // 4 * 3] = pairs
            self.reach *= 2

    @functools.cached_property
    def centres(self) -> np.ndarray:
        """The middle of each bin, once everything has been seen."""
        import numpy

        return (numpy.arange(BINS) + 0.5) * (2 * self.reach / BINS) - self.reach


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
