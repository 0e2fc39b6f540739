"""Native LRN."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.process_cache import process_cache
from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.element import element
from ...runtime.simd.vector import stack_array
from ..elementwise.elementwise_kernel import floating
from .lp_norm import lrn

WIDTH = 256
"""Elements of a channel that are computed at a time."""


@process_cache
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
    """Sum squares of neighbouring channels; NumPy computes sums whose power is undefined."""
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
