"""Where the elements of windows lie: in stretches of one step, each from the begin of its window; behind zeros where windows reach over the edge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import share
from ...runtime.record import dataclass
from .channel_kernel import copied, filled
from .problem_kernel import Problem

MOST = 128
"""Channels of a stretch, whose lines of memory stay in cache from tap to tap."""
LINE = 16
"""Elements of a line of memory."""


@dataclass(frozen=True)
class Stretches:
    """The windows of a convolution.

    Attributes:
        before: launches that lay the input out.
        source: the input of windows.
        size: bytes of a group's input.
        places: bytes from there to each window.
        taps: bytes from the begin of a window to each of its stretches.
        depth, step: elements of a stretch, and bytes from one to the next.
        channels: channels of a stretch, 0 for elements along the last axis.
    """

    before: list[Launch]
    source: Buffer
    size: int
    places: np.ndarray
    taps: np.ndarray
    depth: int
    step: int
    channels: int

    def ordered(self, w: np.ndarray) -> np.ndarray:
        """Kernels [outputs, channels, taps...] as [outputs, elements in their order]."""
        if not self.channels:
            return w.reshape(len(w), -1)
        parts = w.reshape(len(w), w.shape[1] // self.channels, self.channels, -1)
        return parts.transpose(0, 1, 3, 2).reshape(len(w), -1)


@range_kernel
def padded(args: Any, part: Any, parts: Any) -> None:
    """Every channel, or block of them, with zeros around it. Arguments as `problem_kernel` says; then depth, height and width of the result, bytes of
    a channel or block, and channels of a block."""
    block = args[42]
    depth, height, width = args[10], args[11], args[12] * block
    deep, tall, wide, pitch = args[38], args[39], args[40] * block, args[41]
    first, last = share(args[6] * args[7] * args[8] // block, part, parts)
    for channel in range(first, last):
        target = args[2] + channel * pitch
        filled(target, pitch // 4, np.float32(0))
        for z in range(min(depth, deep - args[25])):
            plane = target + 4 * (args[25] + z) * tall * wide
            source = args[0] + 4 * (channel * depth + z) * height * width
            copied(source, height, width, -args[26], tall, args[27] * block, plane, wide, np.float32(0))


def stretches(problem: Problem) -> Stretches:
    """How windows are read."""
    sizes, out, kernel, stride, dilation, begin = (problem.geometry[start : start + 3] for start in range(0, 18, 3))
    block = LINE if problem.blocks_in else 1
    reach = tuple((length - 1) * by + (taps - 1) * apart + 1 for length, taps, by, apart in zip(out, kernel, stride, dilation, strict=True))
    before, source, pitch = [], problem.x, 4 * block * math.prod(sizes)
    if any(begin) or any(length > size for length, size in zip(reach, sizes, strict=True)):
        lines = math.prod(reach) if problem.blocks_in else -(-math.prod(reach) // LINE) | 1
        channels, pitch, sizes = problem.images * problem.groups * problem.channels // block, 4 * LINE * lines, reach
        source = problem.step.scratch(channels * pitch)
        arguments = (*problem.arguments(problem.x, 0, source, None, 0, 0), *reach, pitch, block)
        before = [Launch(padded, arguments, problem.parts(channels, source.nbytes / 8))]
    steps = tuple(4 * block * elements for elements in (sizes[1] * sizes[2], sizes[2], 1))
    axes = [by * apart * np.arange(length) for by, apart, length in zip(steps, stride, out, strict=True)]
    places = axes[0][:, None, None] + axes[1][:, None] + axes[2]
    tap = [by * apart * np.arange(length) for by, apart, length in zip(steps, dilation, kernel, strict=True)]
    within = problem.channels if problem.channels <= MOST else next(count for count in range(MOST, 0, -1) if problem.channels % count == 0)
    if problem.blocks_in:
        within, depth, step = block, block, 4
        taps = pitch * np.arange(problem.channels // block)[:, None, None, None] + tap[0][:, None, None] + tap[1][:, None] + tap[2]
    elif within >= kernel[2]:
        starts = pitch * np.arange(0, problem.channels, within)
        taps = starts[:, None, None, None] + tap[0][:, None, None] + tap[1][:, None] + tap[2]
        depth, step = within, pitch
    else:
        within = 0
        taps = pitch * np.arange(problem.channels)[:, None, None] + tap[0][:, None] + tap[1]
        depth, step = kernel[2], steps[2] * dilation[2]
    return Stretches(before, source, problem.channels // block * pitch, places.reshape(-1), taps.reshape(-1), depth, step, within)
