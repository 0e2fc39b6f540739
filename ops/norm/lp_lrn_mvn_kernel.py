"""Native LpNormalization, MeanVarianceNormalization and LRN."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.elementwise_fusion import FUNCTIONS
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Launch, Planned, Step, native
from ...runtime.simd.element import element
from ...runtime.simd.reduce import add, square
from ...runtime.simd.vector import stack_array
from ..cast.cast_kernel import conversion
from ..elementwise.elementwise_kernel import computed, floating
from ..reduce import reduce
from ..reduce.reduce_kernel import REDUCTIONS, Reduction, launch
from .group_norm import mean_variance_normalization
from .lp_norm import lp_normalization, lrn

WIDTH = 256
"""Elements of a channel that are computed at a time."""


def _quotient(x: float, norm: float) -> float:
    return x / norm if norm != 0 else norm


def _standard(x: float, mean: float, variance: float) -> float:
    return (x - mean) / (math.sqrt(variance) + 1e-9)


FUNCTIONS |= {"LpNormalization": _quotient, "MeanVarianceNormalization": _standard}


@inlined
def _mean(total: Any, size: Any, shift: Any) -> Any:
    return total / size


SPREAD = Reduction(lambda dtype: 0, lambda exp: square, add, _mean, shifted=True)
"""The mean square of distances."""


def _reduced(step: Step, x: Buffer, axes: list[int]) -> Buffer:
    shape = tuple(1 if axis in axes else length for axis, length in enumerate(x.shape))
    return step.scratch(math.prod(shape) * x.dtype.itemsize).view(shape, dtype=x.dtype)


def as_numbers(step: Step, x: Buffer, made: list[Any]) -> Buffer:
    """A buffer in the dtype that it is computed in, which a launch in `made` fills where it is another one."""
    if computed(x.dtype) == x.dtype:
        return x
    wide = step.scratch(x.count * computed(x.dtype).itemsize).view(x.shape, dtype=computed(x.dtype))
    made.append(conversion(x, wide))
    return wide


@native(lp_normalization)
def plan_lp(step: Step) -> Planned:
    """Norms, then quotients."""
    x, p = step.inputs[0], step.attributes["p"]
    if x is None or not floating(x.dtype) or p not in (1, 2):
        return None
    made: list[Any] = []
    x = as_numbers(step, x, made)
    axes = [step.attributes["axis"] % len(x.shape)]
    norms = _reduced(step, x, axes)
    reduction = REDUCTIONS[reduce.reduce_l1 if p == 1 else reduce.reduce_l2]
    made.append(launch(step, reduction, x, norms, axes))
    made.append(Chain((Apply("LpNormalization", (x, norms), (), x.dtype, step.output().dtype),), step.output()))
    return made


@native(mean_variance_normalization)
def plan_mean_variance(step: Step) -> Planned:
    """Means, mean squares of distances from them, then quotients."""
    x = step.inputs[0]
    if x is None or not floating(x.dtype) or not x.shape:
        return None
    made: list[Any] = []
    x = as_numbers(step, x, made)
    axes = sorted({axis % len(x.shape) for axis in step.attributes["axes"]})
    means, spreads = _reduced(step, x, axes), _reduced(step, x, axes)
    made += [
        launch(step, REDUCTIONS[reduce.reduce_mean], x, means, axes),
        launch(step, SPREAD, x, spreads, axes, means),
    ]
    made.append(
        Chain(
            (Apply("MeanVarianceNormalization", (x, means, spreads), (), x.dtype, step.output().dtype),), step.output()
        )
    )
    return made


@functools.cache
def _neighbours(dtype: np.dtype[Any]) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    pointer, read, written, number = kind.pointer, kind.widen, kind.narrow, kind.compute_type
    single = kind.compute_type is np.float32
    exp, log = (kind.math.exp, kind.math.log) if single else (math.exp, math.log)

    @range_kernel(fastmath={"contract"})
    def over_neighbours(
        x: Address,
        y: Address,
        images: int,
        channels: int,
        count: int,
        before: int,
        after: int,
        alpha: float,
        power: float,
        added: float,
        part: int,
        parts: int,
    ) -> None:
        """Channels of `count` elements by a power of the squares of some channels before and after."""
        x, y = pointer(x), pointer(y)
        factor, exponent, bias = number(alpha), number(power), number(added)
        total = stack_array(number, 16)
        blocks = (count + WIDTH - 1) // WIDTH
        first, last = share(images * channels * blocks, part, parts)
        for unit in range(first, last):
            plane, column = unit // blocks, unit % blocks * WIDTH
            channel, width = plane % channels, min(WIDTH, count - column)
            start = plane * count + column
            for j in range(width):
                total[j] = number(0)
            for near in range(max(-before, -channel), min(after, channels - 1 - channel) + 1):
                at = start + near * count
                for j in range(width):
                    value = read(x[at + j])
                    total[j] += value * value
            for j in range(width):
                y[start + j] = written(read(x[start + j]) * exp(-exponent * log(bias + factor * total[j])))

    return over_neighbours


@native(lrn)
def plan_lrn(step: Step) -> Planned:
    """Squares of the channels near each one; sums that have no power are left to NumPy."""
    x = step.inputs[0]
    attributes = step.attributes
    size = attributes["size"]
    if x is None or not floating(x.dtype) or element(x.dtype) is None or len(x.shape) < 2 or size < 1:
        return None
    if attributes["bias"] <= 0 or attributes["alpha"] < 0:
        return None
    images, channels, count = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    return Launch(
        _neighbours(x.dtype),
        step.parts(images * channels * -(-count // WIDTH), x.count * (2.0 + size / 4)),
        x=x,
        y=step.output(),
        images=images,
        channels=channels,
        count=count,
        before=(size - 1) // 2,
        after=size // 2,
        alpha=attributes["alpha"] / size,
        power=attributes["beta"],
        added=attributes["bias"],
    )
