"""A convolution as those see it who choose its kernel, and the arguments that all kernels of convolutions share.

Arguments, where three numbers are for the axes depth, height and width: addresses of input, kernels and output; of the biases, bytes from one
to the next, and zeros; images, groups, channels and outputs of a group; sizes, lengths of the output, of the kernel, strides, dilations, padding
before (18 numbers); lower and upper limit; slices of the work, scratch; `Finish.arguments`; then those of one kernel alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...runtime.launch import Argument, Buffer, Launch, Step
from ...runtime.record import dataclass
from ..math.finish_kernel import Finish
from ..math.tile_kernel import PANEL
from .window import Axis, window

FINER = 2
"""Times as many parts as usual into which windows are cut: threads wait less for each other's last one."""
POINT = Axis(size=1, kernel=1, stride=1, dilation=1, begin=0, end=0, out=1)
Way: TypeAlias = tuple[list[Launch], Callable[[Finish, Buffer], Launch]]
"""Launches that come first, and what makes the last one of what follows the convolution and of where its result goes."""


@dataclass(frozen=True)
class Problem:
    """A convolution over three axes.

    Attributes:
        channels, outputs: of a group.
        geometry: sizes, lengths of the output, of the kernel, strides, dilations, padding before, three numbers each.
        blocks_in, blocks_out: whether the channels of the input and of the output come in blocks of sixteen.
    """

    step: Step
    x: Buffer
    w: Buffer
    bias: Buffer | None
    groups: int
    geometry: tuple[int, ...]
    blocks_in: bool = False
    blocks_out: bool = False

    @property
    def blocked(self) -> bool:
        """Whether channels come in blocks, before or behind."""
        return self.blocks_in or self.blocks_out

    @property
    def images(self) -> int:
        """Images of a batch."""
        return self.x.shape[0]

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.w.shape[1]

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.w.shape[0] // self.groups

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the output."""
        return self.geometry[3:6]

    @property
    def positions(self) -> int:
        """Elements of an output plane."""
        return math.prod(self.lengths)

    @property
    def depth(self) -> int:
        """Products that make up an element of the output."""
        return self.channels * math.prod(self.geometry[6:9])

    @property
    def work(self) -> float:
        """Products, in vectors of sixteen."""
        return self.step.output().count * self.depth / 16

    def parts(self, limit: int, work: float) -> int:
        """How many parts to cut a launch into that has `limit` units and takes `work` products, in vectors of sixteen."""
        return self.step.parts(limit, work, FINER)

    @property
    def plain(self) -> bool:
        """Whether every window is one element, and each element has one."""
        return self.geometry[:6] == self.geometry[:3] * 2 and self.geometry[6:12] == (1,) * 6 and self.geometry[15:] == (0,) * 3

    @property
    def constant(self) -> bool:
        """Whether kernels and biases are known ahead."""
        return self.step.known(1) and (self.bias is None or self.step.known(2))

    @property
    def zeros(self) -> Buffer:
        """As many zeros as a panel has columns."""
        return self.step.held(np.zeros(PANEL, np.float32))

    def padded_bias(self) -> Buffer:
        """Biases [groups, panels x PANEL], of a `constant` problem."""
        made = np.zeros((self.groups, -(-self.outputs // PANEL) * PANEL), np.float32)
        bias = self.step.constant(2) if self.bias is not None else None
        if bias is not None:
            made[:, : self.outputs] = bias.reshape(self.groups, self.outputs)
        return self.step.held(made)

    def arguments(
        self, source: Buffer, weights: Argument, target: Argument, bias: Buffer | None, slices: int, scratch: Argument, finish: Finish | None = None
    ) -> tuple[Argument, ...]:
        """What all kernels are given."""
        after = finish or Finish()
        zeros = self.zeros
        return (
            source, weights, target, bias or zeros, 0 if bias is None else 4, zeros, self.images, self.groups, self.channels, self.outputs,
            *self.geometry, *after.limits, slices, scratch, *after.arguments(0),
        )


def problem(step: Step) -> Problem | None:
    """The problem of a Conv of f32 over one to three axes; None for what kernels do not take."""
    x, w = step.inputs[:2]
    blocks_in, blocks_out = (bool(step.attributes.get(name)) for name in ("blocks_in", "blocks_out"))
    if blocks_in and x is not None:
        x = x.view((x.shape[0], x.shape[1] * x.shape[4], *x.shape[2:4]))
    b = step.inputs[2] if len(step.inputs) > 2 else None
    groups = step.attributes.get("group", 1)
    if x is None or w is None or x.dtype != np.float32 or len(x.shape) not in (3, 4, 5) or w.shape[1] * groups != x.shape[1]:
        return None
    axes = plan_window(step, x, w)
    columns = zip(*((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True)
    return Problem(step, x, w, b, groups, tuple(length for column in columns for length in column), blocks_in, blocks_out)


def plan_window(step: Step, x: Buffer, w: Buffer) -> list[Axis]:
    """Three axes; those that slide over nothing are one."""
    spatial = len(x.shape) - 2
    settings: tuple[Any, ...] = tuple(step.attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = list(window(step.node.op.name, spatial, w.shape[2:], *settings).axes(x.shape[2:]))
    if all(axis.kernel == 1 and axis.stride == 1 and axis.begin == 0 and axis.size == axis.out for axis in axes):
        flat = math.prod(x.shape[2:])
        return [POINT, POINT, replace(POINT, size=flat, out=flat)]
    axes = [axis for axis in axes if replace(axis, dilation=1) != POINT]
    return [POINT] * (3 - len(axes)) + axes
