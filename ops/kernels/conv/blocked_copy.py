"""Implicit-GEMM convolution of a padded NCHW16c copy of its input: for many channels, whose elements are pages apart in
plain layout."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ....runtime.jit.address import share
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Launch
from ....runtime.simd.memory import load_f32, store_f32
from ....runtime.simd.transpose import load_columns
from ....runtime.simd.vector import LANES, splat
from ..gemm.microkernel_f32 import WIDE
from ..gemm.register_tile import VECTOR
from .depthwise import fill
from .implicit_gemm import is_faster, plan_implicit_gemm
from .indirection import reach_of
from .problem import Convolution, ConvPlan, Problem

MIN_CHANNELS = 64
"""Channels from which the copy is made."""
MIN_PRODUCTS = 128
"""Products with each element from which the copy is made."""


@range_kernel
def copy_to_blocks(
    conv: Convolution, reach_depth: int, reach_height: int, reach_width: int, part: int, parts: int
) -> None:
    """Copy [images, channels, depth, height, width] as [images, channels / 16, depth, height, width, 16] of the sizes
    that windows reach, with zero padding."""
    depth, height, width = conv.depth, conv.height, conv.width
    plane, scratch = 4 * depth * height * width, conv.scratch + part * VECTOR * LANES
    rows = reach_depth * reach_height
    begin = min(conv.pad_x, reach_width)
    end = max(begin, min(reach_width, width + conv.pad_x))
    first, last = share(conv.images * conv.channels // LANES * rows, part, parts)
    for unit in range(first, last):
        block, row = unit // rows, unit % rows
        z, y = row // reach_height - conv.pad_z, row % reach_height - conv.pad_y
        line = conv.target + VECTOR * reach_width * unit
        if z < 0 or z >= depth or y < 0 or y >= height:
            fill(line, LANES * reach_width, np.float32(0))
            continue
        source = conv.source + block * LANES * plane + 4 * (z * height + y) * width
        for x in range(begin):
            store_f32(line + VECTOR * x, splat(np.float32(0)))
        for x in range(begin, end, LANES):
            count = min(LANES, end - x)
            place = source + 4 * (x - conv.pad_x)
            if count == LANES:
                load_columns(place, plane, line + VECTOR * x, VECTOR, LANES, (1 << LANES) - 1)
            else:
                load_columns(place, plane, scratch, VECTOR, LANES, (1 << count) - 1)
                for index in range(count):
                    store_f32(line + VECTOR * (x + index), load_f32(scratch + VECTOR * index))
        for x in range(end, reach_width):
            store_f32(line + VECTOR * x, splat(np.float32(0)))


def plan_blocked_copy(problem: Problem) -> ConvPlan | None:
    """Launches of a convolution with constant kernels whose channels fill blocks; None where others are faster, such
    as those of 1 x 1 kernels by AVX-512, which read plain layout."""
    if (
        (WIDE and problem.pointwise)
        or problem.blocked
        or not problem.constant
        or problem.groups > 1
        or not problem.x.count
    ):
        return None
    reach, channels, step = reach_of(problem), problem.channels, problem.step
    copied = problem.images * channels * math.prod(reach)
    if channels % LANES or channels < MIN_CHANNELS or not problem.positions or not is_faster(problem):
        return None
    if problem.images * problem.positions * problem.outputs * problem.depth < MIN_PRODUCTS * copied:
        return None
    target = step.scratch(4 * copied)
    geometry = (*reach, *problem.geometry[3:15], 0, 0, 0)
    view = target.view((problem.images, channels, math.prod(reach)), dtype=np.dtype(np.float32))
    plan = plan_implicit_gemm(replace(problem, x=view, geometry=geometry, blocks_in=True))
    if plan is None:
        return None
    parts = step.parts(problem.images * channels // LANES * reach[0] * reach[1], copied / 4)
    scratch = step.scratch(parts * VECTOR * LANES)
    copy = Launch(
        copy_to_blocks,
        parts,
        conv=problem.arguments(problem.x, 0, target, None, 0, scratch),
        reach_depth=reach[0],
        reach_height=reach[1],
        reach_width=reach[2],
    )
    return [copy, *plan[0]], plan[1]
