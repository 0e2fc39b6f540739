"""Distance between the values of two tensors of any dtypes, in one pass and constant memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import signal_to_noise
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor
from ..console.progress import ignored
from . import tensor_values

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Distance:
    """How far `b` is from `a`, over all elements.

    Attributes:
        different: elements that are not equal (NaN equals NaN).
        outside: elements further apart than the tolerance.
        max_abs, mean_abs: of ``|a - b|``; infinite where only one side is NaN or infinite.
        max_rel: of ``|a - b| / |a|`` where a is not zero.
        cosine: of the angle between the two, None where one of them is zero or not finite.
        snr_db: ``10 log10(sum a^2 / sum (a - b)^2)``, infinite where they are equal.
    """

    different: int = 0
    outside: int = 0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float | None = 1.0
    snr_db: float = math.inf


class _Sums:
    """The sums that `Distance` is computed from, chunk by chunk."""

    def __init__(self, atol: float, rtol: float) -> None:
        self.atol, self.rtol = atol, rtol
        self.count = self.different = self.outside = self.unlike = 0
        self.max_abs = self.max_rel = 0.0
        self.abs = self.dot = self.norm_a = self.norm_b = self.noise = 0.0

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Take in two chunks of equal length."""
        import numpy

        a, b = tensor_values.wide(a), tensor_values.wide(b)
        with numpy.errstate(all="ignore"):
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            finite = numpy.isfinite(a) & numpy.isfinite(b)
            unlike = ~(same | finite)
            a, b = numpy.where(finite, a, 0), numpy.where(finite, b, 0)
            gap, size = numpy.abs(a - b), numpy.abs(a)
            self.outside += int(((gap > self.atol + self.rtol * numpy.abs(b)) | unlike).sum())
            self.max_abs = max(self.max_abs, float(gap.max(initial=0)))
            self.max_rel = max(
                self.max_rel, float(numpy.divide(gap, size, out=numpy.zeros_like(gap), where=size > 0).max(initial=0))
            )
            self.abs += float(gap.sum())
            self.noise += float((gap * gap).sum())
            self.dot += float((a * numpy.conj(b)).real.sum())
            self.norm_a += float((size * size).sum())
            self.norm_b += float((numpy.abs(b) ** 2).sum())
        self.count += a.size
        self.unlike += int(unlike.sum())
        self.different += int((~same).sum())

    def distance(self) -> Distance:
        """The result over all chunks."""
        if not self.different:
            return Distance()
        norms = math.sqrt(self.norm_a) * math.sqrt(self.norm_b)
        cosine = min(1.0, max(-1.0, self.dot / norms)) if 0 < norms < math.inf else None
        if self.unlike:
            return Distance(self.different, self.outside, math.inf, math.inf, self.max_rel, cosine, -math.inf)
        snr = math.nan if self.noise and self.norm_a == math.inf else signal_to_noise(self.norm_a, self.noise)
        return Distance(self.different, self.outside, self.max_abs, self.abs / self.count, self.max_rel, cosine, snr)


def distance(
    a: StoredTensor,
    b: StoredTensor,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    advance: Callable[[int], object] = ignored,
) -> Distance | None:
    """How far two tensors of one shape are from each other; None where one of them cannot be decoded.

    Args:
        atol, rtol: elements are within the tolerance when ``|a - b| <= atol + rtol * |b|``.
        advance: called with the bytes of both sides that were read.
    """
    left, right = tensor_values.plain(a), tensor_values.plain(b)
    if left is None or right is None:
        return None
    step = math.lcm(tensor_values.unit(left), tensor_values.unit(right))
    step = max(step, CHUNK // 8 // step * step)
    sums = _Sums(atol, rtol)
    for first in range(0, left.count, step):
        last = min(left.count, first + step)
        sums.add(tensor_values.read(left, first, last), tensor_values.read(right, first, last))
        advance(share(a, first, last) + share(b, first, last))
    return sums.distance()


def share(tensor: StoredTensor, first: int, last: int) -> int:
    """The stored bytes that elements `first` to `last` take, for progress."""
    return tensor.nbytes * last // tensor.count - tensor.nbytes * first // tensor.count
