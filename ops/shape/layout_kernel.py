"""Native operators that move elements: views where nothing moves, and one strided copy for the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, View, native
from ...runtime.native import share, u8, u16, u32, u64
from .concat import concat
from .reshape import flatten, reshape
from .slice import slice_
from .squeeze import squeeze, unsqueeze
from .transpose import transpose


def _copying(pointer: Any) -> RangeKernel:
    @range_kernel
    def strided_copy(args: Any, part: Any, parts: Any) -> None:
        """From, to, rows, elements of a row, their strides on both sides, outer dims; lengths (last first), strides from, strides to."""
        source, target = pointer(args[0]), pointer(args[1])
        rows, count, step_from, step_to, outer = args[2], args[3], args[4], args[5], args[6]
        first, last = share(rows, part, parts)
        for row in range(first, last):
            rest, begin, end = row, 0, 0
            for axis in range(outer):
                length = args[7 + axis]
                index = rest % length
                rest = rest // length
                begin += index * args[7 + outer + axis]
                end += index * args[7 + 2 * outer + axis]
            if step_from == 1 and step_to == 1:
                for j in range(count):
                    target[end + j] = source[begin + j]
            else:
                for j in range(count):
                    target[end + j * step_to] = source[begin + j * step_from]

    return strided_copy


COPIES = {1: _copying(u8), 2: _copying(u16), 4: _copying(u32), 8: _copying(u64)}


def copy(
    step: Step, source: Buffer, target: Buffer, lengths: Sequence[int], strides_from: Sequence[int], strides_to: Sequence[int],
) -> Launch:
    """A copy of a box of elements; neighbouring axes that lie behind each other on both sides become one."""
    axes: list[tuple[int, int, int]] = []
    for length, one, other in zip(lengths, strides_from, strides_to, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == one * length and axes[-1][2] == other * length:
            axes[-1] = (axes[-1][0] * length, one, other)
        else:
            axes.append((length, one, other))
    count, step_from, step_to = axes.pop() if axes else (1, 1, 1)
    rows = math.prod(length for length, _, _ in axes)
    outer = [item for column in zip(*axes[::-1], strict=True) for item in column] if axes else []
    work = rows * count * (0.5 if step_from == step_to == 1 else 1.5)
    return Launch(COPIES[source.dtype.itemsize], (source, target, rows, count, step_from, step_to, len(axes), *outer), step.parts(rows, work))


@native(reshape, flatten, squeeze, unsqueeze)
def plan_view(step: Step) -> Planned:
    """The same elements."""
    return View(step.inputs[0]) if step.inputs[0] is not None else None


@native(transpose)
def plan_transpose(step: Step) -> Planned:
    """Read along the permuted axes."""
    x = step.inputs[0]
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    order = step.attributes["perm"]
    order = list(range(len(x.shape)))[::-1] if order is None else [axis % len(x.shape) for axis in order]
    if [axis for axis in order if x.shape[axis] != 1] == sorted(axis for axis in order if x.shape[axis] != 1):
        return View(x)
    y = step.output()
    return copy(step, x, y, y.shape, [x.strides[axis] for axis in order], y.strides)


@native(concat)
def plan_concat(step: Step) -> Planned:
    """One copy for each input."""
    y = step.output()
    axis = step.attributes["axis"] % len(y.shape)
    launches, start = [], 0
    for x in step.inputs:
        if x is None or x.dtype != y.dtype or x.dtype.itemsize not in COPIES:
            return None
        place = y.view(x.shape, start * y.strides[axis])
        launches.append(copy(step, x, place, x.shape, x.strides, y.strides))
        start += x.shape[axis]
    return launches




@native(slice_)
def plan_slice(step: Step) -> Planned:
    """Constant bounds; a box whose elements lie together is a view."""
    x = step.inputs[0]
    bounds = [None if step.inputs[index] is None else step.constant(index) for index in range(1, len(step.inputs))]
    if x is None or x.dtype.itemsize not in COPIES or any(item is None and step.inputs[index] is not None for index, item in enumerate(bounds, 1)):
        return None
    starts, stops, *others = [None if item is None else [int(part) for part in item] for item in bounds]
    assert starts is not None
    assert stops is not None
    axes = others[0] if others and others[0] is not None else list(range(len(starts)))
    steps = others[1] if len(others) > 1 and others[1] is not None else [1] * len(starts)
    begin, strides = 0, list(x.strides)
    for start, stop, axis, stride in zip(starts, stops, axes, steps, strict=True):
        first, _, _ = slice(start, stop, stride).indices(x.shape[axis])
        begin += first * x.strides[axis]
        strides[axis] = x.strides[axis] * stride
    shape = step.results[0][1] if step.results[0] is not None else ()
    place = x.view(shape, begin)
    if all(length == 1 or one == other for length, one, other in zip(shape, strides, place.strides, strict=True)):
        return View(place)
    return copy(step, place, step.output(), shape, strides, step.output().strides)
