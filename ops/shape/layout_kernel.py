"""Native data movement: views where possible, otherwise one strided copy."""

from __future__ import annotations

import itertools
import math

from ...runtime.plan.kernel_api import Launch, Planned, Step, View, native
from ..kernels.strided_copy import COPIES, copy
from .concat import concat
from .depth_to_space import depth_to_space, space_to_depth
from .expand import expand, tile
from .reshape import flatten, reshape
from .slice import slice_
from .split import equal_parts, split
from .squeeze import squeeze, unsqueeze
from .transpose import transpose


@native(reshape, flatten, squeeze, unsqueeze, empty=True)
def plan_view(step: Step) -> Planned:
    """Return a view of the same elements."""
    return View(step.inputs[0]) if step.inputs[0] is not None and step.inputs[0].count else None


@native(transpose)
def plan_transpose(step: Step) -> Planned:
    """Copy with permuted strides."""
    x = step.inputs[0]
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    order = step.attributes["perm"]
    order = list(range(len(x.shape)))[::-1] if order is None else [axis % len(x.shape) for axis in order]
    if [axis for axis in order if x.shape[axis] != 1] == sorted(axis for axis in order if x.shape[axis] != 1):
        return View(x)
    y = step.output()
    return copy(step, x, y, y.shape, [x.strides[axis] for axis in order], y.strides)


@native(concat, empty=True)
def plan_concat(step: Step) -> Planned:
    """Launch one copy per input that has elements."""
    y = step.output()
    axis = step.attributes["axis"] % len(y.shape)
    launches, start = [], 0
    for x in step.inputs:
        if x is None or x.dtype != y.dtype or x.dtype.itemsize not in COPIES:
            return None
        if not x.count:
            continue
        place = y.view(x.shape, start * y.strides[axis])
        copying = copy(step, x, place, x.shape, x.strides, y.strides)
        together = math.prod(y.shape[:axis]) == 1
        launches.append(copying.changed(copied=(x, place)) if together else copying)
        start += x.shape[axis]
    return launches


@native(expand, empty=True)
def plan_expand(step: Step) -> Planned:
    """Copy with stride 0 along repeated axes."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    if x.count == y.count:
        return View(x)
    shape = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    steps = [0 if length == 1 else stride for length, stride in zip(shape, x.view(shape).strides, strict=True)]
    return copy(step, x, y, y.shape, steps, y.strides)


@native(tile)
def plan_tile(step: Step) -> Planned:
    """Copy each axis as two: the repeats, with stride 0, and the axis itself."""
    x, y = step.inputs[0], step.output()
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    lengths, strides, places = [], [], []
    for length, whole, one, other in zip(x.shape, y.shape, x.strides, y.strides, strict=True):
        lengths += [whole // length, length]
        strides += [0, one]
        places += [other * length, other]
    return copy(step, x, y, lengths, strides, places)


@native(split)
def plan_split(step: Step) -> Planned:
    """Copy each part; parts that are contiguous are views."""
    x = step.inputs[0]
    if x is None or x.dtype.itemsize not in COPIES:
        return None
    axis, lengths = step.attributes["axis"] % len(x.shape), step.constant(1)
    if lengths is None and len(step.inputs) > 1 and step.inputs[1] is not None:
        return None
    parts = (
        equal_parts(x.shape[axis], step.attributes["num_outputs"] or len(step.results))
        if lengths is None
        else [int(item) for item in lengths]
    )
    if len(parts) != len(step.results) or sum(parts) != x.shape[axis] or min(parts) < 1:
        return None
    launches: list[Launch] = []
    for index, start in enumerate(itertools.accumulate(parts[:-1], initial=0)):
        if not step.is_used(index):
            continue
        shape = (*x.shape[:axis], parts[index], *x.shape[axis + 1 :])
        place = x.view(shape, start * x.strides[axis])
        if math.prod(x.shape[:axis]) == 1:
            step.outputs[index] = place
        else:
            launches.append(copy(step, place, step.output(index), shape, x.strides, step.output(index).strides))
    return launches


@native(depth_to_space, space_to_depth)
def plan_blocks(step: Step) -> Planned:
    """Permute six axes."""
    x, block = step.inputs[0], step.attributes["blocksize"]
    if x is None or len(x.shape) != 4 or x.dtype.itemsize not in COPIES:
        return None
    n, c, h, w = x.shape
    row_major = step.attributes["mode"] == "DCR"
    if step.node.op is depth_to_space:
        left = c // (block * block)
        shape = (n, block, block, left, h, w) if row_major else (n, left, block, block, h, w)
        order = (0, 3, 4, 1, 5, 2) if row_major else (0, 1, 4, 2, 5, 3)
    else:
        shape = (n, c, h // block, block, w // block, block)
        order = (0, 3, 5, 1, 2, 4) if row_major else (0, 1, 3, 5, 2, 4)
    seen, y = x.view(shape), step.output()
    permuted = y.view([shape[axis] for axis in order])
    return copy(step, x, permuted, permuted.shape, [seen.strides[axis] for axis in order], permuted.strides)


@native(slice_)
def plan_slice(step: Step) -> Planned:
    """Plan constant bounds; a contiguous slice is a view."""
    x = step.inputs[0]
    bounds = [None if step.inputs[index] is None else step.constant(index) for index in range(1, len(step.inputs))]
    if (
        x is None
        or x.dtype.itemsize not in COPIES
        or any(item is None and step.inputs[index] is not None for index, item in enumerate(bounds, 1))
    ):
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
