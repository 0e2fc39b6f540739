"""Convolution on the device: by cuDNN if it is available, otherwise as products over padded inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...runtime.cuda.element.block_quantized import QuantizedBuffer
from ...runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain, scalar_key
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.matmul import cudnn
from ...runtime.cuda.matmul import cudnn_conv as library
from ...runtime.cuda.matmul.conv_problem import Convolution, cudnn_problem
from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, on_cpu
from ...runtime.plan.kernel_api import Buffer, Chain
from ..elementwise.arithmetic import add
from ..elementwise.piecewise_activation import relu
from ..rules.sliding_window import Axis, window
from .conv import conv
from .conv_nchwc import blocked_conv
from .conv_transpose import NAMES, conv_transpose, transposed_axes

on_cpu("device graphs do not use blocked channels", blocked_conv)


def plus(x: float, bias: float) -> float:
    """x + bias."""
    return x + bias


def laid_out(step: Step, x: Buffer, tables: Sequence[np.ndarray | None]) -> tuple[Buffer, Launch]:
    """[n, channels, spatial...] with each spatial axis by a table of indices, 0 where it holds -1."""
    lengths = [length if table is None else len(table) for length, table in zip(x.shape[2:], tables, strict=True)]
    made = step.temporary(x.dtype, (*x.shape[:2], *lengths))
    strides, lookups = list(x.strides), []
    for axis, table in enumerate(tables, 2):
        if table is not None:
            along = tuple(int(other == axis) for other in range(len(x.shape)))
            lookups.append(
                Lookup(step.constant_buffer(table.astype(np.int64)), along, x.strides[axis], x.shape[axis], wraps=False)
            )
            strides[axis] = 0
    return made, copy_launch(made.shape, Operand(x, tuple(strides), lookups=tuple(lookups)), over(made, made.shape))


def _padding(axis: Axis) -> np.ndarray | None:
    """Positions of a padded axis, None where nothing is read beyond its ends."""
    reach = (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1
    if axis.begin == 0 and reach <= axis.size:
        return None
    places = np.arange(reach) - axis.begin
    return np.where((places >= 0) & (places < axis.size), places, -1)


def convolved(
    step: Step, x: Buffer, w: Buffer, y: Buffer, axes: Sequence[Axis], groups: int, sums: np.dtype | None = None
) -> list[Launch | Chain]:
    """y[n, out, positions] = sum of w[out, channels, taps] * x[n, channels, positions * stride + taps * dilation]."""
    tables = [_padding(axis) for axis in axes]
    launches: list[Launch | Chain] = []
    if any(table is not None for table in tables):
        x, launch = laid_out(step, x, tables)
        launches.append(launch)
    n, channels, each = x.shape[0], x.shape[1] // groups, w.shape[0] // groups
    outs, taps, depth = math.prod(y.shape[2:]), [axis.kernel for axis in axes], math.prod(w.shape[1:])
    launches.append(
        product(
            w,
            x,
            y,
            Contraction(
                stack=Axes(
                    [n, groups], [0, each * depth], [x.strides[0], channels * x.strides[1]], [y.strides[0], each * outs]
                ),
                rows=Axes([each], [depth], None, [outs]),
                columns=Axes(
                    y.shape[2:],
                    None,
                    [axis.stride * step_of for axis, step_of in zip(axes, x.strides[2:], strict=True)],
                    y.strides[2:],
                ),
                depth=Axes(
                    [channels, *taps],
                    w.strides[1:],
                    [x.strides[1], *(axis.dilation * item for axis, item in zip(axes, x.strides[2:], strict=True))],
                    None,
                ),
            ),
            sums,
        )
    )
    return launches


@cuda(conv)
def conv_on_device(step: Step) -> Planned:
    """Plan convolutions over any number of spatial axes."""
    x, w, bias, y = step.input(0), step.input(1), step.optional_input(2), step.output()
    settings = (step.attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = window("Conv", len(x.shape) - 2, w.shape[2:], *settings).axes(x.shape[2:])
    if x.shape[1] != w.shape[1] * step.attributes["group"] or w.shape[0] % step.attributes["group"]:
        return "the shapes of its inputs contradict each other"
    return by_library(step, axes) or [*convolved(step, x, w, y, axes, step.attributes["group"]), *biased(y, bias)]


def by_library(step: Step, axes: Sequence[Axis], transposed: bool = False) -> list[Launch | Chain] | None:
    """A convolution by cuDNN, None where it does not know it. One that is not transposed takes in its bias, then an
    array of its shape, then a Relu."""
    given, w, bias, result = step.input(0), step.input(1), step.optional_input(2), step.output()
    arrays = [given, w, result, *([] if bias is None else [bias])]
    x, y = (result, given) if transposed else (given, result)
    strides, dilations, pads = (tuple(getattr(axis, name) for axis in axes) for name in ("stride", "dilation", "begin"))
    asked = cudnn_problem(
        Convolution(
            x.shape, w.shape, y.shape, strides, dilations, pads, step.attributes["group"], x.dtype.name, transposed
        )
    )
    if (
        asked is None
        or not cudnn.available()
        or any(isinstance(item, QuantizedBuffer) or item.dtype != given.dtype for item in arrays)
    ):
        return None

    def launch(
        target: Buffer, shift: Buffer | None = None, more: Buffer | None = None, rectified: bool = False
    ) -> Launch | None:
        found = library.launched(asked, given, w, target, step.device, shift, more, rectified)
        return (
            found
            if found is None or transposed or rectified
            else replace(found, output=target, takes=functools.partial(takes, more))
        )

    def takes(more: Buffer | None, then: Chain, made: Buffer) -> Launch | None:
        head, shift = (
            then.steps[0],
            step.constant_buffer(np.zeros(result.shape[1], result.dtype)) if bias is None else bias,
        )
        others = [item for item in head.operands if item is not None and item.allocation is not made.allocation]
        if len(then.steps) > 1:
            return None
        if head.key == scalar_key(relu):
            return launch(then.output, shift, more, rectified=True)
        plain = (
            len(others) == 1
            and (others[0].shape, others[0].dtype) == (made.shape, made.dtype)
            and not isinstance(others[0], QuantizedBuffer)
        )
        adds = head.key == scalar_key(add) and more is None and plain
        return launch(then.output, shift, others[0]) if adds else None

    whole = launch(result) if bias is None else None if transposed else launch(result, bias)
    if whole is not None:
        return [whole]
    part = None if bias is None else launch(result)
    return None if part is None else [replace(part, takes=None), *biased(result, bias)]


def biased(y: Buffer, bias: Buffer | None) -> list[Chain]:
    """Channels with a bias added."""
    return [] if bias is None else [elementwise_chain(plus, [y, bias.view((y.shape[1], *[1] * (len(y.shape) - 2)))], y)]


@cuda(conv_transpose)
def conv_transpose_on_device(step: Step) -> Planned:
    """Plan transposed convolutions over any number of spatial axes."""
    names = (step.attributes[name] for name in NAMES)
    axes = [
        axis for axis in transposed_axes(step.input(1).shape[2:], step.input(0).shape[2:], *names) if axis is not None
    ]
    return by_library(step, axes, transposed=True) or _stuffed(step, axes)


def _stuffed(step: Step, axes: Sequence[Axis]) -> list[Launch | Chain]:
    """A product with the flipped kernel over an input with zeros between its elements."""
    x, w, y, groups = step.input(0), step.input(1), step.output(), step.attributes["group"]
    tables = []
    for axis in axes:
        places = (
            np.arange(axis.size + (axis.kernel - 1) * axis.dilation) + axis.begin - (axis.kernel - 1) * axis.dilation
        )
        inside = (places % axis.stride == 0) & (places >= 0) & (places < axis.out * axis.stride)
        tables.append(np.where(inside, places // axis.stride, -1))
    spread, launch = laid_out(step, x, tables)
    channels, each = x.shape[1] // groups, w.shape[1]
    outs = math.prod(y.shape[2:])
    start = sum((axis.kernel - 1) * axis.dilation * item for axis, item in zip(axes, spread.strides[2:], strict=True))
    made = product(
        w,
        spread,
        y,
        Contraction(
            stack=Axes(
                [x.shape[0], groups],
                [0, channels * w.strides[0]],
                [spread.strides[0], channels * spread.strides[1]],
                [y.strides[0], each * outs],
            ),
            rows=Axes([each], [w.strides[1]], None, [outs]),
            columns=Axes(y.shape[2:], None, spread.strides[2:], y.strides[2:]),
            depth=Axes(
                [channels, *w.shape[2:]],
                [w.strides[0], *w.strides[2:]],
                [
                    spread.strides[1],
                    *(-axis.dilation * item for axis, item in zip(axes, spread.strides[2:], strict=True)),
                ],
                None,
            ),
            starts=(0, start, 0),
        ),
    )
    return [launch, made, *biased(y, step.optional_input(2))]
