"""A convolution's geometry: the planner's view of it, and the arguments that all convolution kernels share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.jit.kernel_arguments import Address
from ....runtime.plan.kernel_api import Argument, Buffer, Launch, Step
from ...rules.sliding_window import Axis, window
from ..gemm.epilogue import Epilogue, EpilogueArguments
from ..gemm.register_tile import PANEL

PARTS_FACTOR = 2
"""Convolutions are cut into this many times the usual parts, to balance threads."""
UNIT_AXIS = Axis(size=1, kernel=1, stride=1, dilation=1, begin=0, end=0, out=1)
ConvPlan: TypeAlias = tuple[list[Launch], Callable[[Epilogue, Buffer], Launch]]
"""Launches before the convolution, and a function from epilogue and output buffer to its launch."""


class Convolution(NamedTuple):
    """Arguments that all convolution kernels share.

    Attributes:
        bias_step: bytes between biases.
        channels, outputs: per group.
        slices: how the work is cut; depends on the kernel.
    """

    source: Address
    weights: Address
    target: Address
    bias: Address
    bias_step: int
    zeros: Address
    images: int
    groups: int
    channels: int
    outputs: int
    depth: int
    height: int
    width: int
    out_depth: int
    out_height: int
    out_width: int
    kernel_z: int
    kernel_y: int
    kernel_x: int
    stride_z: int
    stride_y: int
    stride_x: int
    dilation_z: int
    dilation_y: int
    dilation_x: int
    pad_z: int
    pad_y: int
    pad_x: int
    slices: int
    scratch: Address
    epilogue: EpilogueArguments


@dataclass(frozen=True)
class Problem:
    """A convolution over three axes.

    Attributes:
        geometry: input size, output size, kernel size, strides, dilations, padding before; three integers each.
        blocks_in, blocks_out: whether the input and the output are NCHW16c.
        arrangement, arrange: the weights are those of the step, arranged by a function that a key stands for.
    """

    step: Step
    x: Buffer
    w: Buffer
    bias: Buffer | None
    groups: int
    geometry: tuple[int, ...]
    blocks_in: bool = False
    blocks_out: bool = False
    arrangement: tuple[str | int, ...] = ()
    arrange: Callable[[np.ndarray], np.ndarray] = lambda weights: weights

    @property
    def blocked(self) -> bool:
        """Whether the input or the output is NCHW16c."""
        return self.blocks_in or self.blocks_out

    @property
    def images(self) -> int:
        """Batch size."""
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
        """Spatial size of the output."""
        return self.geometry[3:6]

    @property
    def positions(self) -> int:
        """Elements of an output plane."""
        return math.prod(self.lengths)

    @property
    def depth(self) -> int:
        """Products per output element."""
        return self.channels * math.prod(self.geometry[6:9])

    @property
    def work(self) -> float:
        """Number of multiply-adds, in vectors of sixteen."""
        return self.step.output().count * self.depth / 16

    def parts(self, limit: int, work: float) -> int:
        """Number of parts of a launch with `limit` units and `work` vector products."""
        return self.step.parts(limit, work, PARTS_FACTOR)

    @property
    def pointwise(self) -> bool:
        """Whether the kernel is 1 x 1 with stride 1 and without padding."""
        return (
            self.geometry[:6] == self.geometry[:3] * 2
            and self.geometry[6:12] == (1,) * 6
            and self.geometry[15:] == (0,) * 3
        )

    @property
    def planar(self) -> bool:
        """Whether windows are two-dimensional: the first axis has one element, one tap and no padding."""
        return (*self.geometry[0:9:3], self.geometry[15]) == (1, 1, 1, 0)

    @property
    def constant(self) -> bool:
        """Whether kernels and biases are constants."""
        return self.step.is_constant(1) and (self.bias is None or self.step.is_constant(2))

    @property
    def zeros(self) -> Buffer:
        """A vector of `PANEL` zeros."""
        return self.step.constant_buffer(np.zeros(PANEL, np.float32))

    def without_row_dilation(self) -> tuple[Problem, int]:
        """The convolution of every `row_step`-th row, whose windows have neighbouring ones of these rows, and
        `row_step`; the convolution itself and 1 where output rows have a stride."""
        kernel, stride, row_step = self.geometry[7], self.geometry[10], self.geometry[13]
        if kernel == 1 or stride > 1 or row_step == 1:
            return self, 1
        return replace(self, geometry=(*self.geometry[:13], 1, *self.geometry[14:])), row_step

    def padded_bias(self) -> Buffer:
        """Zero-padded biases [groups, panels x PANEL]; needs constant biases."""
        made = np.zeros((self.groups, -(-self.outputs // PANEL) * PANEL), np.float32)
        bias = self.step.constant(2) if self.bias is not None else None
        if bias is not None:
            made[:, : self.outputs] = bias.reshape(self.groups, self.outputs)
        return self.step.constant_buffer(made)

    def arguments(
        self,
        source: Buffer,
        weights: Argument,
        target: Argument,
        bias: Buffer | None,
        slices: int,
        scratch: Argument,
        epilogue: Epilogue | None = None,
    ) -> Convolution:
        """The shared kernel arguments."""
        zeros = self.zeros
        return Convolution._make(
            (
                source,
                weights,
                target,
                bias or zeros,
                0 if bias is None else 4,
                zeros,
                self.images,
                self.groups,
                self.channels,
                self.outputs,
                *self.geometry,
                slices,
                scratch,
                (epilogue or Epilogue()).arguments(0),
            )
        )


def problem(step: Step) -> Problem | None:
    """The geometry of an f32 Conv over one to three axes; None if no kernel supports it."""
    x, w = step.inputs[:2]
    blocks_in, blocks_out = (bool(step.attributes.get(name)) for name in ("blocks_in", "blocks_out"))
    if blocks_in and x is not None:
        x = x.view((x.shape[0], x.shape[1] * x.shape[4], *x.shape[2:4]))
    b = step.inputs[2] if len(step.inputs) > 2 else None
    groups = step.attributes.get("group", 1)
    if (
        x is None
        or w is None
        or x.dtype != np.float32
        or len(x.shape) not in (3, 4, 5)
        or w.shape[1] * groups != x.shape[1]
        or (b is not None and b.shape != w.shape[:1])
    ):
        return None
    axes = window_axes(step, x, w)
    columns = zip(
        *((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True
    )
    return Problem(
        step, x, w, b, groups, tuple(length for column in columns for length in column), blocks_in, blocks_out
    )


def window_axes(step: Step, x: Buffer, w: Buffer) -> list[Axis]:
    """The window along three spatial axes; axes of length one are dropped, and all are merged for pointwise kernels."""
    spatial = len(x.shape) - 2
    settings: tuple[Any, ...] = tuple(step.attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = list(window(step.node.op.name, spatial, w.shape[2:], *settings).axes(x.shape[2:]))
    if all(axis.kernel == 1 and axis.stride == 1 and axis.begin == 0 and axis.size == axis.out for axis in axes):
        flat = math.prod(x.shape[2:])
        return [UNIT_AXIS, UNIT_AXIS, replace(UNIT_AXIS, size=flat, out=flat)]
    axes = [axis for axis in axes if replace(axis, dilation=1) != UNIT_AXIS]
    return [UNIT_AXIS] * (3 - len(axes)) + axes
