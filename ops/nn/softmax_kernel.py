"""Native Softmax and LogSoftmax of contiguous f32 rows."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.memory import exp16, load_f32, store_f32
from ...runtime.simd.memory import lane_max as largest_lane
from ...runtime.simd.memory import lane_sum as sum_of_lanes
from ...runtime.simd.memory import maximum as wider
from ...runtime.simd.vector import address_of, splat, stack_array
from ..rules.row_kernel import plan_rows
from .log_softmax import log_softmax
from .softmax import softmax


@range_kernel
def single_rows(x: Address, y: Address, rows: int, count: int, logarithm: int, part: int, parts: int) -> None:
    """Softmax of f32 rows, sixteen numbers at a time: from, to, rows, elements of a row, whether the logarithm is
    wanted."""
    tail = stack_array(np.float32, 1)
    behind = address_of(tail)
    first, last = share(rows, part, parts)
    whole = count - count % 16
    for row in range(first, last):
        start, target = x + 4 * row * count, y + 4 * row * count
        for k in range(16):
            tail[k] = f32(start)[whole + k] if k < count - whole else np.float32(-np.inf)
        rest = load_f32(behind)
        two = rest
        for j in range(0, whole - 16, 32):
            rest = wider(rest, load_f32(start + 4 * j))
            two = wider(two, load_f32(start + 4 * j + 64))
        if whole % 32 != 0:
            rest = wider(rest, load_f32(start + 4 * whole - 64))
        most = largest_lane(wider(rest, two))
        one, two = exp16(load_f32(behind) - most), splat(np.float32(0))
        if logarithm == 0:
            store_f32(behind, one)
            for j in range(0, whole, 16):
                power = exp16(load_f32(start + 4 * j) - most)
                store_f32(target + 4 * j, power)
                two = two + power
            scale = np.float32(1) / sum_of_lanes(one + two)
            for j in range(0, whole, 16):
                store_f32(target + 4 * j, load_f32(target + 4 * j) * scale)
            for k in range(count - whole):
                f32(target)[whole + k] = tail[k] * scale
        else:
            for j in range(0, whole, 16):
                two = two + exp16(load_f32(start + 4 * j) - most)
            lower = most + np.float32(math.log(sum_of_lanes(one + two)))
            for j in range(0, whole, 16):
                store_f32(target + 4 * j, load_f32(start + 4 * j) - lower)
            for k in range(count - whole):
                f32(target)[whole + k] = tail[k] - lower


@native(softmax, log_softmax)
def plan_softmax(step: Step) -> Planned:
    """Plan contiguous f32 rows; the row operator plans the rest."""
    x = step.inputs[0]
    if x is None or x.dtype != np.float32 or not x.count or math.prod(x.shape[step.attributes["axis"] :][1:]) != 1:
        return plan_rows(step)
    count = x.shape[step.attributes["axis"]]
    rows = x.count // count
    logarithm = int(step.node.op is log_softmax)
    parts = step.parts(rows, x.count * 1.0)
    return Launch(single_rows, parts, x=x, y=step.output(), rows=rows, count=count, logarithm=logarithm)
