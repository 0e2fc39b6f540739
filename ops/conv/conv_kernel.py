"""Native f32 convolution over one to three axes: the choice of an algorithm, and im2col with GEMM for the rest."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ..kernels.conv.banded_gemm import plan_banded_gemm
from ..kernels.conv.blocked_copy import plan_blocked_copy
from ..kernels.conv.channels_vectorized import plan_channels_vectorized
from ..kernels.conv.depthwise import plan_depthwise
from ..kernels.conv.depthwise_points import plan_depthwise_points
from ..kernels.conv.direct_rows import plan_direct_rows
from ..kernels.conv.im2col import pack_columns
from ..kernels.conv.implicit_gemm import plan_implicit_gemm
from ..kernels.conv.problem import Convolution, ConvPlan, Problem, problem
from ..kernels.conv.winograd.winograd import plan_winograd
from ..kernels.gemm.epilogue import Epilogue, apply_epilogue, launch_with_epilogue, prefetch_rows
from ..kernels.gemm.microkernel_f32 import ROWS, column_of_tiles
from ..kernels.gemm.register_tile import PANEL
from ..kernels.half_via_f32 import via_f32
from .conv import conv
from .im2row_kernel import plan_im2row
from .in_place_kernel import plan_in_place
from .phases_kernel import plan_by_phases

GROUPED_PLANES = 4 * ROWS
"""Rows whose memory is asked for before they are computed."""


@inner
def _packed(conv: Any, source: Any, start: Any, wide: Any, panel: Any, depth: Any) -> None:
    """`wide` windows from position `start` on, one in each column of a panel, zeros after them."""
    pack_columns(conv, source, conv.channels, start, wide, panel)
    if wide < PANEL:
        for k in range(depth):
            for j in range(wide, PANEL):
                f32(panel)[k * PANEL + j] = np.float32(0)


@range_kernel
def im2col_gemm(conv: Convolution, part: int, parts: int) -> None:
    """Panels of output positions for every image and group; when these are few, rows of output channels are parts as
    well."""
    x, w, y, bias, bias_row, zero = conv.source, conv.weights, conv.target, conv.bias, conv.bias_step, conv.zeros
    images, groups, channels, outputs = conv.images, conv.groups, conv.channels, conv.outputs
    low, high, slices = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high), conv.slices
    depth = channels * conv.kernel_z * conv.kernel_y * conv.kernel_x
    scratch = conv.scratch + part * (depth + ROWS) * 4 * PANEL
    positions = conv.out_depth * conv.out_height * conv.out_width
    count = (positions + PANEL - 1) // PANEL
    first, last = share(images * groups * count * slices, part, parts)
    before = -1
    for unit in range(first, last):
        place, piece = unit // slices, unit % slices
        panel, group, image = place % count, place // count % groups, place // count // groups
        start = panel * PANEL
        wide = min(PANEL, positions - start)
        if place != before:
            before = place
            _packed(
                conv,
                x + (image * groups + group) * channels * conv.depth * conv.height * conv.width * 4,
                start,
                wide,
                scratch,
                depth,
            )
        low_row, high_row = outputs * piece // slices, outputs * (piece + 1) // slices
        base = ((image * groups + group) * outputs * positions + start) * 4
        for row in range(low_row, high_row, GROUPED_PLANES):
            end, place = min(row + GROUPED_PLANES, high_row), base + row * positions * 4
            prefetch_rows(conv.epilogue, y, place, positions * 4, end - row, 4 * wide)
            column_of_tiles(
                w + group * outputs * depth * 4,
                depth * 4,
                4,
                scratch,
                depth,
                y + base,
                positions * 4,
                row,
                end,
                wide,
                bias + group * outputs * bias_row,
                bias_row,
                zero,
                low,
                high,
                scratch + depth * 4 * PANEL,
            )
            apply_epilogue(conv.epilogue, y, place, positions * 4, end - row, wide)


def _slice_count(step: Step, panels: int, outputs: int) -> int:
    """Into how many slices output channels are cut, so that there are parts for all threads."""
    return 1 if panels >= 4 * step.threads else max(1, min(outputs // ROWS, -(-4 * step.threads // panels)))


def pointwise_gemm(step: Step, x: Buffer, w: Buffer, y: Buffer, lengths: tuple[int, int, int, int, int]) -> Launch:
    """Products of constant matrices with planes: images, groups, channels and outputs of a group, positions."""
    images, groups, channels, outputs, positions = lengths
    panels = images * groups * -(-positions // PANEL)
    slices = _slice_count(step, panels, outputs)
    parts = step.parts(panels * slices, images * groups * outputs * positions * channels / 16)
    zero = step.constant_buffer(np.zeros(PANEL, np.float32))
    line = (1, 1, positions, 1, 1, positions, *(1,) * 9, 0, 0, 0)
    scratch = step.scratch(parts * (channels + ROWS) * 4 * PANEL)
    epilogue = Epilogue().arguments(0)
    pointwise = Convolution(
        x,
        w,
        y,
        zero,
        0,
        zero,
        images,
        groups,
        channels,
        outputs,
        *line,
        slices=slices,
        scratch=scratch,
        epilogue=epilogue,
    )
    return Launch(im2col_gemm, parts, conv=pointwise)


def plan_im2col(problem: Problem) -> ConvPlan:
    """The launch that takes everything."""
    step = problem.step
    panels = problem.images * problem.groups * -(-problem.positions // PANEL)
    slices = _slice_count(step, panels, problem.outputs)
    parts = step.parts(panels * slices, problem.work)
    room = step.scratch(parts * (problem.depth + ROWS) * 4 * PANEL)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            im2col_gemm,
            parts,
            conv=problem.arguments(problem.x, problem.w, result, problem.bias, slices, room, epilogue),
        )

    return [], launch


@native(conv)
@via_f32
def plan_conv(step: Step) -> Planned:
    """Plan up to three spatial axes; NumPy computes the rest."""
    found = problem(step)
    if found is None:
        return None
    before, last = (
        plan_winograd(found)
        or plan_depthwise_points(found)
        or plan_channels_vectorized(found)
        or plan_direct_rows(found)
        or plan_banded_gemm(found)
        or plan_by_phases(found)
        or plan_im2row(found)
        or plan_in_place(found)
        or plan_blocked_copy(found)
        or plan_implicit_gemm(found)
        or plan_depthwise(found)
        or plan_im2col(found)
    )
    return [*before, launch_with_epilogue(last, step.output(), 0)]
