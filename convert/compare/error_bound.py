"""Error bounds: how far values may be from their source, for every target type.

Elements of a floating-point type are at most one unit in the last place away. Blocks are judged by the root mean square
of their error, in units of the largest magnitude among their values: rounding to the nearest of evenly spaced values
stays under half a step, searching encoders trade some elements for others. The numbers are the worst of many
distributions (normal, heavy-tailed, sparse, uniform, shifted, two-valued) encoded with and without importance, plus a
fifth for whole tensors and plus a third for single blocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import signal_to_noise
from ...runtime.tensor.dtype import BlockType, DType
from ...runtime.tensor.stored_tensor import StoredTensor
from ..inspect import tensor_values

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class BlockBound:
    """How far blocks may be off.

    Attributes:
        tensor, block: root mean square of the error over all blocks, and over one of them, for a largest magnitude of
            1.
        floor: the absolute error that the smallest steps of the block's scale make, whatever the magnitude.
    """

    tensor: float
    block: float
    floor: float


HALF_STEP = 2.0**-25
"""Half the distance of the smallest half-precision numbers, which scales are."""

BLOCK_BOUNDS = {
    name: BlockBound(tensor, block, multiplier * HALF_STEP)
    for name, tensor, block, multiplier in (
        ("q1_0", 0.36, 0.45, 1),
        ("q2_0", 0.40, 0.50, 1),
        ("q4_0", 0.10, 0.14, 8),
        ("q4_1", 0.045, 0.14, 16),
        ("q5_0", 0.055, 0.09, 16),
        ("q5_1", 0.022, 0.085, 32),
        ("q8_0", 0.003, 0.005, 128),
        ("q8_1", 0.003, 0.005, 128),
        ("q8_k", 0.004, 0.005, 0),
        ("q2_k", 0.17, 0.22, 16 * 3),
        ("q3_k", 0.15, 0.18, 32 * 4),
        ("q4_k", 0.042, 0.055, 64 * 16),
        ("q5_k", 0.021, 0.028, 64 * 32),
        ("q6_k", 0.011, 0.022, 128 * 32),
        ("iq1_s", 0.33, 0.55, 15 * 1.125),
        ("iq1_m", 0.36, 0.60, 15 * 1.125),
        ("iq2_xxs", 0.56, 0.75, 15.5 / 4 * 43),
        ("iq2_xs", 0.42, 0.58, 15.5 / 4 * 43),
        ("iq2_s", 0.20, 0.27, 15.5 / 4 * 43),
        ("iq3_xxs", 0.40, 0.50, 15.5 / 2 * 62),
        ("iq3_s", 0.22, 0.28, 31 * 15),
        ("iq4_nl", 0.075, 0.12, 128),
        ("iq4_xs", 0.075, 0.10, 32 * 128),
        ("tq1_0", 0.43, 0.53, 1),
        ("tq2_0", 0.43, 0.53, 1),
        ("mxfp4", 0.11, 0.18, 0),
        ("nvfp4", 0.08, 0.12, 6 * 2.0**15),
    )
}
"""By type. The last number is the largest product of codes that the scale is multiplied with; nvfp4 has 8-bit scales of
which the smallest is 2**-9."""
TENSOR_SHARE = 0.6
"""Error of a tensor of codes by that of one of its rows."""
LEAST_COSINE = 0.1
"""Of the angle between a tensor and its blocks, which in few bits would else pass for one of noise."""


def row_bound(rounding: float) -> BlockBound:
    """How far the rows of a weight may be off that is stored as codes; `rounding` as of `Dequantized`."""
    return BlockBound(TENSOR_SHARE * rounding, rounding, 256 * HALF_STEP)


COMPUTED = 2.0**-20
"""Relative error of a few f32 operations, such as the exponential function, in different libraries."""


def element_bound(dtype: DType) -> tuple[float, float]:
    """Relative and absolute error that elements of a plain dtype may have; zero for those that hold no fractions."""
    if isinstance(dtype, BlockType) or dtype.kind not in ("float", "complex"):
        return 0.0, 0.0
    import ml_dtypes
    import numpy

    wanted = dtype.as_numpy()
    if wanted.kind == "c":
        wanted = numpy.empty(0, wanted).real.dtype
    found = ml_dtypes.finfo(wanted)  # type: ignore[no-untyped-call]
    return float(found.eps), float(found.smallest_subnormal)


@dataclass
class _Errors:
    """Sums over the values of a tensor that were finite."""

    noise: float = 0.0
    signal: float = 0.0
    largest: float = 0.0
    count: int = 0
    different: int = 0
    lost: int = 0

    def take(self, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and errors, 0 where the source is not finite."""
        import numpy

        before, after = tensor_values.wide(before), tensor_values.wide(after)
        with numpy.errstate(all="ignore"):
            same = (before == after) | (numpy.isnan(before) & numpy.isnan(after))
            finite = numpy.isfinite(before)
            self.different += int((~same).sum())
            self.lost += int((~same & ~(finite & numpy.isfinite(after))).sum())
            error = numpy.where(finite & ~same, numpy.abs(before - after), 0)
            before = numpy.where(finite, before, 0)
            self.noise += float((error * error).sum())
            self.signal += float((numpy.abs(before) ** 2).sum())
        self.largest = max(self.largest, float(error.max(initial=0.0)))
        self.count += before.size
        return before, error

    def measured(self) -> dict[str, float]:
        snr = signal_to_noise(self.signal, self.noise)
        return {"rmse": math.sqrt(self.noise / max(1, self.count)), "max_error": self.largest, "snr_db": snr}


class Elements:
    """Plain elements, one by one.

    Args:
        computed: whether values were computed on the way, and may differ in the last bits of f32 whatever their types.
    """

    def __init__(self, source: StoredTensor, made: StoredTensor, *, computed: bool = False) -> None:
        self.errors = _Errors()
        self.same = source.dtype == made.dtype and not computed
        self.relative, self.absolute = element_bound(made.dtype)
        self.relative = max(self.relative, COMPUTED) if computed else self.relative
        self.used = 0.0

    def add(self, before: np.ndarray, after: np.ndarray) -> None:
        """Look at some of them."""
        import numpy

        values, error = self.errors.take(before, after)
        if before.size:
            with numpy.errstate(all="ignore"):
                allowed = numpy.abs(values) * self.relative + self.absolute
                used = numpy.divide(error, allowed, out=numpy.where(error > 0, numpy.inf, 0.0), where=allowed > 0)
            self.used = max(self.used, float(used.max()))

    def verdict(self) -> dict[str, Any]:
        """Status and numbers; values of the same type, and those that are not finite, have to stay."""
        status = "equal" if not self.errors.different else "within"
        if self.errors.lost:
            status = "nan"
        elif self.errors.different and self.same:
            status = "changed"
        elif not self.used <= 1:
            status = "beyond"
        return {"status": status, "used": None if self.same else self.used, **self.errors.measured()}


class Blocks:
    """Blocks of `length` values. Those with values that are not finite say nothing: their scale is what `--nan keep`
    makes of them."""

    def __init__(self, length: int, bound: BlockBound | None) -> None:
        self.errors = _Errors()
        self.length = length
        self.bound = bound
        self.used = self.peaks = self.blocks = self.product = self.energy = 0.0

    def add(self, before: np.ndarray, after: np.ndarray) -> None:
        """Look at some whole blocks."""
        import numpy

        whole = numpy.isfinite(before).reshape(-1, self.length).all(axis=1)
        before, after = (side.reshape(-1, self.length)[whole] for side in (before, after))
        values, error = self.errors.take(before, after)
        if self.bound is None or not values.size:
            return
        with numpy.errstate(all="ignore"):
            peaks = numpy.abs(values).max(axis=1)
            rms = numpy.sqrt((error * error).mean(axis=1))
            allowed = peaks * self.bound.block + self.bound.floor
            used = numpy.divide(rms, allowed, out=numpy.where(rms > 0, numpy.inf, 0.0), where=allowed > 0)
            wide = tensor_values.wide(after)
            self.product += float((values * wide).sum())
            self.energy += float((wide * wide).sum())
        self.used = max(self.used, float(used.max()))
        self.peaks += float((peaks * peaks).sum())
        self.blocks += len(values)

    def verdict(self) -> dict[str, Any]:
        """Status and numbers."""
        errors, status = self.errors, "within"
        if self.blocks and self.bound is not None:
            allowed = math.sqrt(self.peaks / self.blocks) * self.bound.tensor + self.bound.floor
            rmse = math.sqrt(errors.noise / errors.count)
            self.used = max(self.used, rmse / allowed if allowed else math.inf if rmse else 0.0)
        if errors.lost:
            status = "nan"
        elif self.bound is None:
            status = "unknown"
        elif not self.used <= 1 or self._noise():
            status = "beyond"
        return {"status": status, "used": self.used, **errors.measured()}

    def _noise(self) -> bool:
        """Whether what is large enough for the type's steps points elsewhere."""
        assert self.bound is not None
        if not self.blocks or math.sqrt(self.peaks / self.blocks) <= 4 * self.bound.floor:
            return False
        length = math.sqrt(self.errors.signal) * math.sqrt(self.energy)
        return not length or self.product / length < LEAST_COSINE
