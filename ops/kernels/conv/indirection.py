"""Indirection buffer of a convolution: byte offsets of the window elements, in a zero-padded copy where windows cross
the edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.jit.address import share
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from .depthwise import copy_rows, fill
from .problem import Convolution, Problem

MAX_CHANNELS = 128
"""Maximum number of channels per segment, so that their lines stay in cache from tap to tap."""
LINE = 16
"""Elements of a cache line."""


@dataclass(frozen=True)
class Indirection:
    """Indirection buffer: offsets of the window elements of a convolution.

    Attributes:
        before: launches that pad the input.
        source: the buffer that windows are read from.
        group_bytes: bytes of a group's input.
        offsets: byte offset of each window in a group's input.
        taps: byte offset of each segment in a window.
        depth, step: elements of a segment, and bytes between them.
        channels: channels of a segment, 0 if segments run along the last axis.
    """

    before: list[Launch]
    source: Buffer
    group_bytes: int
    offsets: np.ndarray
    taps: np.ndarray
    depth: int
    step: int
    channels: int

    def reorder(self, w: np.ndarray) -> np.ndarray:
        """Reorder kernels [outputs, channels, taps...] to [outputs, window elements]."""
        if not self.channels:
            return w.reshape(len(w), -1)
        parts = w.reshape(len(w), w.shape[1] // self.channels, self.channels, -1)
        return parts.transpose(0, 1, 3, 2).reshape(len(w), -1)


@range_kernel(unroll=False)
def pad_input(
    conv: Convolution,
    reach_depth: int,
    reach_height: int,
    reach_width: int,
    pitch: int,
    block: int,
    part: int,
    parts: int,
) -> None:
    """Copy every channel (or block of `block` channels) with zero padding, `pitch` bytes apart."""
    depth, height, width = conv.depth, conv.height, conv.width * block
    deep, tall, wide = reach_depth, reach_height, reach_width * block
    first, last = share(conv.images * conv.groups * conv.channels // block, part, parts)
    for channel in range(first, last):
        target = conv.target + channel * pitch
        fill(target, pitch // 4, np.float32(0))
        for z in range(min(depth, deep - conv.pad_z)):
            plane = target + 4 * (conv.pad_z + z) * tall * wide
            source = conv.source + 4 * (channel * depth + z) * height * width
            copy_rows(source, height, width, -conv.pad_y, 1, tall, conv.pad_x * block, plane, wide)


def indirection(problem: Problem) -> Indirection:
    """The indirection buffer of a convolution."""
    sizes, block = problem.geometry[:3], _block(problem)
    before, source, pitch = [], problem.x, 4 * block * math.prod(sizes)
    reach = reach_of(problem)
    if crosses_edge(problem):
        lines = math.prod(reach) if problem.blocks_in else -(-math.prod(reach) // LINE) | 1
        channels, pitch, sizes = problem.images * problem.groups * problem.channels // block, 4 * LINE * lines, reach
        source = problem.step.scratch(channels * pitch)
        before = [
            Launch(
                pad_input,
                problem.parts(channels, source.nbytes / 8),
                conv=problem.arguments(problem.x, 0, source, None, 0, 0),
                reach_depth=reach[0],
                reach_height=reach[1],
                reach_width=reach[2],
                pitch=pitch,
                block=block,
            )
        ]
    return replace(windows_of(problem, source, sizes, problem.lengths, pitch), before=before)


def _block(problem: Problem) -> int:
    return LINE if problem.blocks_in else 1


def reach_of(problem: Problem) -> tuple[int, ...]:
    """Input sizes that windows reach, from the first one's start."""
    out, kernel, stride, dilation = (problem.geometry[start : start + 3] for start in (3, 6, 9, 12))
    return tuple(
        (length - 1) * by + (taps - 1) * apart + 1
        for length, taps, by, apart in zip(out, kernel, stride, dilation, strict=True)
    )


def crosses_edge(problem: Problem) -> bool:
    """Whether windows reach outside of the input."""
    sizes, begin = problem.geometry[:3], problem.geometry[15:]
    return any(begin) or any(length > size for length, size in zip(reach_of(problem), sizes, strict=True))


def windows_of(problem: Problem, source: Buffer, sizes: Sequence[int], out: Sequence[int], pitch: int) -> Indirection:
    """The windows of outputs [out] in a source of these sizes, whose channels, or blocks of them, are `pitch` bytes
    apart."""
    kernel, stride, dilation = (problem.geometry[start : start + 3] for start in (6, 9, 12))
    block = _block(problem)
    steps = tuple(4 * block * elements for elements in (sizes[1] * sizes[2], sizes[2], 1))
    axes = [by * apart * np.arange(length) for by, apart, length in zip(steps, stride, out, strict=True)]
    offsets = axes[0][:, None, None] + axes[1][:, None] + axes[2]
    tap = [by * apart * np.arange(length) for by, apart, length in zip(steps, dilation, kernel, strict=True)]
    within = (
        problem.channels
        if problem.channels <= MAX_CHANNELS
        else next(count for count in range(MAX_CHANNELS, 0, -1) if problem.channels % count == 0)
    )
    if problem.blocks_in:
        within, depth, step = block, block, 4
        taps = (
            pitch * np.arange(problem.channels // block)[:, None, None, None]
            + tap[0][:, None, None]
            + tap[1][:, None]
            + tap[2]
        )
    elif within >= kernel[2]:
        starts = pitch * np.arange(0, problem.channels, within)
        taps = starts[:, None, None, None] + tap[0][:, None, None] + tap[1][:, None] + tap[2]
        depth, step = within, pitch
    else:
        within = 0
        taps = pitch * np.arange(problem.channels)[:, None, None] + tap[0][:, None] + tap[1]
        depth, step = kernel[2], steps[2] * dilation[2]
    return Indirection(
        [], source, problem.channels // block * pitch, offsets.reshape(-1), taps.reshape(-1), depth, step, within
    )
