"""Native convolution of float32 over one to three axes: windows are packed into panels, which the kernels multiply; and the choice of a kernel."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, number, share
from ..math.finish_kernel import Finish, finished, finishing, foresee
from ..math.tile_kernel import PANEL, ROWS, column_of_tiles
from .abreast_kernel import abreast
from .channel_kernel import by_channel
from .conv import conv
from .panel_kernel import in_panels
from .problem_kernel import Problem, Way, problem
from .window_kernel import columns
from .winograd_kernel import in_squares

TOGETHER = 4 * ROWS
"""Rows whose memory is asked for before they are computed."""


@inner
def _packed(args: Any, source: Any, start: Any, wide: Any, panel: Any, depth: Any) -> None:
    """`wide` windows from position `start` on, one in each column of a panel, zeros behind them."""
    columns(args, source, args[8], start, wide, panel)
    if wide < PANEL:
        for k in range(depth):
            for j in range(wide, PANEL):
                f32(panel)[k * PANEL + j] = np.float32(0)


@range_kernel
def convolved(args: Any, part: Any, parts: Any) -> None:
    """Panels of output positions for every image and group; when these are few, rows of output channels are parts as well. Arguments as
    `problem_kernel` says."""
    x, w, y, bias, bias_row, zero = args[0], args[1], args[2], args[3], args[4], args[5]
    images, groups, channels, outputs = args[6], args[7], args[8], args[9]
    low, high, slices = np.float32(number(args[28])), np.float32(number(args[29])), args[30]
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    depth = channels * args[16] * args[17] * args[18]
    scratch = args[31] + part * (depth + ROWS) * 4 * PANEL
    positions = args[13] * args[14] * args[15]
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
            _packed(args, x + (image * groups + group) * channels * args[10] * args[11] * args[12] * 4, start, wide, scratch, depth)
        low_row, high_row = outputs * piece // slices, outputs * (piece + 1) // slices
        base = ((image * groups + group) * outputs * positions + start) * 4
        for row in range(low_row, high_row, TOGETHER):
            end, place = min(row + TOGETHER, high_row), base + row * positions * 4
            other = added + place if added != 0 else added
            foresee(y + place, other, positions * 4, end - row, 4 * wide)
            column_of_tiles(
                w + group * outputs * depth * 4, depth * 4, 4, scratch, depth, y + base, positions * 4, row, end, wide,
                bias + group * outputs * bias_row, bias_row, zero, low, high, scratch + depth * 4 * PANEL,
            )
            if args[32] != 0:
                finished(args[33], alpha, beta, y + place, positions * 4, end - row, wide, other, positions * 4)


def _slices(step: Step, panels: int, outputs: int) -> int:
    """Into how many slices output channels are cut, so that there are parts for all threads."""
    return 1 if panels >= 4 * step.threads else max(1, min(outputs // ROWS, -(-4 * step.threads // panels)))


def planes_product(step: Step, x: Buffer, w: Buffer, y: Buffer, lengths: tuple[int, int, int, int, int]) -> Launch:
    """Products of constant matrices with planes: images, groups, channels and outputs of a group, positions."""
    images, groups, channels, outputs, positions = lengths
    panels = images * groups * -(-positions // PANEL)
    slices = _slices(step, panels, outputs)
    parts = step.parts(panels * slices, images * groups * outputs * positions * channels / 16)
    zero = step.held(np.zeros(PANEL, np.float32))
    line = (1, 1, positions, 1, 1, positions, *(1,) * 9, 0, 0, 0)
    scratch = step.scratch(parts * (channels + ROWS) * 4 * PANEL)
    finish = Finish()
    arguments = (x, w, y, zero, 0, zero, images, groups, channels, outputs, *line, *finish.limits, slices, scratch, *finish.arguments(0))
    return Launch(convolved, arguments, parts)


def in_columns(problem: Problem) -> Way:
    """The launch that takes everything."""
    step = problem.step
    panels = problem.images * problem.groups * -(-problem.positions // PANEL)
    slices = _slices(step, panels, problem.outputs)
    parts = step.parts(panels * slices, problem.work)
    room = step.scratch(parts * (problem.depth + ROWS) * 4 * PANEL)

    def launch(finish: Finish, result: Buffer) -> Launch:
        return Launch(convolved, problem.arguments(problem.x, problem.w, result, problem.bias, slices, room, finish), parts)

    return [], launch


@native(conv)
def plan_conv(step: Step) -> Planned:
    """Four spatial axes and more are left to NumPy."""
    found = problem(step)
    if found is None:
        return None
    before, last = in_squares(found) or abreast(found) or in_panels(found) or by_channel(found) or in_columns(found)
    return [*before, finishing(last, step.output(), 0)]
