"""Convolutions along one axis by phases: the samples that are a stride apart are channels of their own.

A convolution with a stride is then one without, over as many more channels. A transposed one makes as many more
channels, whose samples are the result's in turns.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Step
from ..kernels.conv.implicit_gemm import LONG_ROW, STRIDES, plan_implicit_gemm
from ..kernels.conv.problem import ConvPlan, Problem
from ..kernels.gemm.epilogue import Epilogue, EpilogueArguments, apply_epilogue

F32 = np.dtype(np.float32)


@inner
def _inside(shift: int, stride: int, length: int, count: int) -> tuple[int, int]:
    """The first m, and the one after the last, of `count` for which ``stride * m + shift`` is in [0, length)."""
    least = max(0, (-shift + stride - 1) // stride)
    most = min(count, (length - 1 - shift) // stride + 1) if length > shift else 0
    return min(least, count), max(most, min(least, count))


@range_kernel
def split_phases(
    x: Address, y: Address, planes: int, length: int, stride: int, pad: int, count: int, part: int, parts: int
) -> None:
    """Planes of `length` samples as [planes, stride, count]: sample m of a phase is ``stride * m + phase - pad``, or
    zero."""
    first, last = share(planes * stride, part, parts)
    for row in range(first, last):
        shift = row % stride - pad
        source, target = f32(x + 4 * (row // stride) * length), f32(y + 4 * row * count)
        least, most = _inside(shift, stride, length, count)
        for m in range(least):
            target[m] = np.float32(0)
        for m in range(least, most):
            target[m] = source[stride * m + shift]
        for m in range(most, count):
            target[m] = np.float32(0)


@range_kernel
def joined_phases(
    phases: Address,
    bias: Address,
    y: Address,
    planes: int,
    channels: int,
    length: int,
    stride: int,
    pad: int,
    count: int,
    epilogue: EpilogueArguments,
    part: int,
    parts: int,
) -> None:
    """The opposite of `split_phases`; so many channels have biases, 0 for none."""
    low, high = np.float32(epilogue.low), np.float32(epilogue.high)
    first, last = share(planes, part, parts)
    for plane in range(first, last):
        result = f32(y + 4 * plane * length)
        added = f32(bias)[plane % channels] if bias != 0 else np.float32(0)
        for phase in range(stride):
            source, shift = f32(phases + 4 * (plane * stride + phase) * count), phase - pad
            least, most = _inside(shift, stride, length, count)
            for m in range(least, most):
                value = source[m] + added
                value = low if value < low else value
                result[stride * m + shift] = high if value > high else value
        apply_epilogue(epilogue, y, 4 * plane * length, 0, 1, length)


def _phases_of(stride: int, w: np.ndarray) -> np.ndarray:
    """Kernels [out, channels, width], also with axes of length one, as [out, channels x stride, width / stride]."""
    w = w.reshape(*w.shape[:2], -1)
    taps = -(-w.shape[2] // stride)
    padded = np.pad(w, ((0, 0), (0, 0), (0, taps * stride - w.shape[2])))
    split = padded.reshape(*w.shape[:2], taps, stride).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(split).reshape(len(w), -1, taps)


def _phases_out_of(stride: int, groups: int, w: np.ndarray) -> np.ndarray:
    """Kernels [channels, out / groups, width] of a transposed convolution as those of a convolution, [out x stride,
    channels / groups, width / stride], rounded up."""
    each = [_phases_of(stride, part.transpose(1, 0, 2)) for part in np.split(w, groups)]
    made = [part.reshape(len(part), -1, stride, part.shape[2]).transpose(0, 2, 1, 3)[..., ::-1] for part in each]
    return np.concatenate([part.reshape(-1, *part.shape[2:]) for part in made])


def _along_one_axis(size: int, out: int, kernel: int, pad: int) -> tuple[int, ...]:
    """The geometry of `Problem`."""
    return (1, 1, size, 1, 1, out, 1, 1, kernel, 1, 1, 1, 1, 1, 1, 0, 0, pad)


def plan_by_phases(problem: Problem) -> ConvPlan | None:
    """A convolution whose stride has no tiles of its own; None for others."""
    size, out, kernel, stride, dilation, pad = problem.geometry[2::3]
    others = problem.geometry[:2] + problem.geometry[6:8]
    if problem.blocked or others != (1,) * 4 or stride in STRIDES or dilation != 1 or kernel < stride or out < LONG_ROW:
        return None
    step, taps, planes = problem.step, -(-kernel // stride), problem.images * problem.x.shape[1]
    count = out + taps - 1
    split = step.scratch(4 * planes * stride * count)
    derived = replace(
        problem,
        x=split.view((problem.images, problem.x.shape[1] * stride, count), dtype=F32),
        w=_shaped(problem.w, (problem.w.shape[0], problem.channels * stride, taps)),
        geometry=_along_one_axis(count, out, taps, 0),
        arrangement=("phases", stride),
        arrange=functools.partial(_phases_of, stride),
    )
    found = plan_implicit_gemm(derived)
    if found is None:
        return None
    parts = step.parts(planes * stride, planes * stride * count / 2)
    splitting = Launch(
        split_phases, parts, x=problem.x, y=split, planes=planes, length=size, stride=stride, pad=pad, count=count
    )
    return [splitting, *found[0]], found[1]


def plan_transposed_by_phases(
    step: Step, y: Buffer, groups: int, geometry: tuple[int, int, int, int, int]
) -> ConvPlan | None:
    """A transposed convolution whose kernel is not narrower than its stride; None for others.

    Args:
        y: the result [images, out, length].
        geometry: samples, width of the kernel, stride, dilation, and samples of the result that are left out.
    """
    (size, kernel, stride, dilation, pad), x, w = geometry, step.input(0), step.input(1)
    images, outputs, length = y.shape
    if stride < 2 or dilation != 1 or kernel < stride or not y.count or not x.count:
        return None
    taps, count, planes = -(-kernel // stride), -(-(length + pad) // stride), images * outputs
    made = step.scratch(4 * planes * stride * count)
    derived = Problem(
        step,
        x,
        _shaped(w, (outputs * stride, w.shape[0] // groups, taps)),
        None,
        groups,
        _along_one_axis(size, count, taps, taps - 1),
        arrangement=("phases out", stride, groups),
        arrange=functools.partial(_phases_out_of, stride, groups),
    )
    found = plan_implicit_gemm(derived)
    if found is None:
        return None
    phases = made.view((images, outputs * stride, count), dtype=F32)
    parts = step.parts(planes, planes * length / 2)
    bias = step.optional_input(2)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            joined_phases,
            parts,
            phases=phases,
            bias=0 if bias is None else bias,
            y=result,
            planes=planes,
            channels=outputs,
            length=length,
            stride=stride,
            pad=pad,
            count=count,
            epilogue=epilogue.arguments(0),
        )

    return [*found[0], found[1](Epilogue(), phases)], launch


def _shaped(weights: Buffer, shape: tuple[int, ...]) -> Buffer:
    """Weights under another shape, for kernels that only read them packed."""
    return weights.view(shape)
