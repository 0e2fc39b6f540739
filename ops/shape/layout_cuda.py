"""Data movement on the device: views where possible, otherwise copies by strides or index tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain, View
from .concat import concat
from .depth_to_space import depth_to_space, space_to_depth
from .expand import expand, tile
from .pad import center_crop_pad, pad
from .reshape import flatten, reshape
from .reverse_sequence import reverse_sequence
from .shape import shape, size
from .slice import bounds, slice_
from .split import split
from .squeeze import squeeze, unsqueeze
from .transpose import transpose


@cuda(reshape, flatten, squeeze, unsqueeze)
def view_on_device(step: Step) -> Planned:
    """Return a view of the same elements."""
    return View(step.input(0))


@cuda(shape, size)
def constant_on_device(step: Step) -> Planned:
    """Copy a value that follows from shapes alone."""
    x = step.input(0)
    compute = step.node.op.compute
    assert compute is not None
    result = step.results[0]
    assert result is not None
    return View(
        step.constant_buffer(
            np.asarray(compute(np.broadcast_to(np.zeros((), x.dtype), x.shape), **step.node.attributes)).astype(
                result[0]
            )
        )
    )


def whole(buffer: Buffer) -> Operand:
    """A buffer over its own box."""
    return over(buffer, buffer.shape)


@cuda(transpose)
def transpose_on_device(step: Step) -> Planned:
    """Copy with permuted strides."""
    x = step.input(0)
    order = step.attributes["perm"]
    order = list(range(len(x.shape)))[::-1] if order is None else [axis % len(x.shape) for axis in order]
    moved = [axis for axis in order if x.shape[axis] != 1]
    if moved == sorted(moved):
        return View(x)
    y = step.output()
    return copy_launch(y.shape, Operand(x, tuple(x.strides[axis] for axis in order)), whole(y))


@cuda(concat)
def concat_on_device(step: Step) -> Planned:
    """Launch one copy per input."""
    y = step.output()
    axis = step.attributes["axis"] % len(y.shape)
    launches: list[Launch | Chain] = []
    start = 0
    for x in step.inputs:
        assert x is not None
        launches.append(copy_launch(x.shape, whole(x), Operand(y, y.strides, start * y.strides[axis])))
        start += x.shape[axis]
    return launches


@cuda(split)
def split_on_device(step: Step) -> Planned:
    """Launch one copy per output."""
    x = step.input(0)
    axis = step.attributes["axis"] % len(x.shape)
    launches: list[Launch | Chain] = []
    lengths = step.constant(1)
    if lengths is None and step.optional_input(1) is not None:
        return "its lengths are not constants"
    parts = [int(item) for item in lengths] if lengths is not None else None
    start = 0
    for index, value in enumerate(step.node.outputs):
        found = value.shape[axis] if value.shape is not None else None
        length = parts[index] if parts is not None else found
        if not isinstance(length, int):
            return "the length of an unused output is unknown"
        if step.is_used(index) and length:
            y = step.output(index)
            launches.append(copy_launch(y.shape, Operand(x, x.strides, start * x.strides[axis]), whole(y)))
        start += length
    return launches


@cuda(slice_)
def slice_on_device(step: Step) -> Planned:
    """Plan constant bounds."""
    x, y = step.input(0), step.output()
    given = [step.constant(index) for index in range(1, 5)]
    if any(item is None and step.optional_input(index) is not None for index, item in enumerate(given, 1)):
        return "its bounds are not constants"
    starts, ends, axes, steps = (None if item is None else [int(part) for part in item.reshape(-1)] for item in given)
    assert starts is not None
    assert ends is not None
    offset, strides = 0, list(x.strides)
    for place, axis in enumerate(axes if axes is not None else range(len(starts))):
        found = bounds(starts[place], ends[place], steps[place] if steps is not None else 1, x.shape[axis])
        offset += found.start * x.strides[axis]
        strides[axis] = x.strides[axis] * found.step
    return copy_launch(y.shape, Operand(x, tuple(strides), offset), whole(y))


@cuda(expand)
def expand_on_device(step: Step) -> Planned:
    """Copy with stride 0 along axes of one element."""
    x, y = step.input(0), step.output()
    return View(x) if x.count == y.count else copy_launch(y.shape, over(x, y.shape), whole(y))


@cuda(tile)
def tile_on_device(step: Step) -> Planned:
    """Copy with repeats along every axis."""
    x, y = step.input(0), step.output()
    lengths = [item for length, own in zip(y.shape, x.shape, strict=True) for item in (length // own, own)]
    strides = [item for step_of in x.strides for item in (0, step_of)]
    return copy_launch(lengths, Operand(x, tuple(strides)), whole(y.view(lengths)))


def by_tables(step: Step, x: Buffer, y: Buffer, tables: Sequence[np.ndarray | None]) -> Launch:
    """y[i, j ...] = x[first[i], second[j] ...], 0 where a table holds -1."""
    lookups = []
    strides = list(x.strides)
    for axis, table in enumerate(tables):
        if table is None:
            continue
        strides[axis] = 0
        along = tuple(1 if other == axis else 0 for other in range(len(y.shape)))
        lookups.append(
            Lookup(step.constant_buffer(table.astype(np.int64)), along, x.strides[axis], x.shape[axis], wraps=False)
        )
    moved = Operand(x, tuple(strides), lookups=tuple(lookups))
    return copy_launch(y.shape, moved, whole(y))


def _chosen(x: Any, value: Any, inside: Any) -> Any:
    return x if inside else value


@cuda(pad)
def pad_on_device(step: Step) -> Planned:
    """Copy by a table of source indices per axis."""
    x, y = step.input(0), step.output()
    pads, axes = step.constant(1), step.constant(3)
    if pads is None or (axes is None and step.optional_input(3) is not None):
        return "its pads are not constants"
    rank = len(x.shape)
    chosen = [int(axis) % rank for axis in axes.reshape(-1)] if axes is not None else list(range(rank))
    given = [int(item) for item in pads.reshape(-1)]
    tables: list[np.ndarray | None] = [None] * rank
    compute = pad.compute
    assert compute is not None
    for place, axis in enumerate(chosen):
        ends = np.array([given[place], given[place + len(chosen)]])
        if ends.any():
            tables[axis] = compute(np.arange(x.shape[axis]), ends, np.array(-1), mode=step.attributes["mode"])
    if all(table is None for table in tables):
        return View(x)
    value = step.optional_input(2)
    if step.attributes["mode"] != "constant" or value is None:
        return by_tables(step, x, y, tables)
    target = step.temporary(y.dtype, y.shape)
    moved = by_tables(step, x, target, tables)
    inside = np.ones(1, bool)
    for table in tables:
        inside = inside[..., None] & (np.ones(1, bool) if table is None else table >= 0)
    flags = step.constant_buffer(inside.reshape([1 if table is None else len(table) for table in tables]))
    return [moved, elementwise_chain(_chosen, [target, value.view(()), flags], y, compute=compute_dtype(y.dtype))]


@cuda(center_crop_pad)
def center_on_device(step: Step) -> Planned:
    """Copy by a table of source indices per axis."""
    x, y = step.input(0), step.output()
    compute = center_crop_pad.compute
    assert compute is not None
    tables = [
        None if own == new else compute(np.arange(1, own + 1), np.array([new])) - 1
        for own, new in zip(x.shape, y.shape, strict=True)
    ]
    return View(x) if all(table is None for table in tables) else by_tables(step, x, y, tables)


@cuda(depth_to_space)
def depth_on_device(step: Step) -> Planned:
    """Rearrange blocks of channels into blocks of pixels."""
    x, y, block = step.input(0), step.output(), step.attributes["blocksize"]
    n, channels, height, width = x.shape
    if step.attributes["mode"] == "DCR":
        split_axes, order = (n, block, block, channels // block**2, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split_axes, order = (n, channels // block**2, block, block, height, width), (0, 1, 4, 2, 5, 3)
    parts = x.view(split_axes)
    return copy_launch(
        [split_axes[axis] for axis in order],
        Operand(x, tuple(parts.strides[axis] for axis in order)),
        whole(y.view([split_axes[axis] for axis in order])),
    )


@cuda(space_to_depth)
def space_on_device(step: Step) -> Planned:
    """Rearrange blocks of pixels into channels."""
    x, y, block = step.input(0), step.output(), step.attributes["blocksize"]
    n, channels, height, width = x.shape
    split_axes = (n, channels, height // block, block, width // block, block)
    order = (0, 3, 5, 1, 2, 4) if step.attributes["mode"] == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = x.view(split_axes)
    lengths = [split_axes[axis] for axis in order]
    return copy_launch(lengths, Operand(x, tuple(parts.strides[axis] for axis in order)), whole(y.view(lengths)))


def iota(step: Step, length: int, behind: int = 0) -> Buffer:
    """0, 1, 2 ... along an axis that `behind` others follow."""
    return step.constant_buffer(np.arange(length, dtype=np.int64).reshape(-1, *[1] * behind))


def _reversed_time(time: int, length: int) -> int:
    return length - 1 - time if time < length else time


@cuda(reverse_sequence)
def reverse_on_device(step: Step) -> Planned:
    """Build a table of time steps per sequence, then copy by it."""
    x, lengths, y = step.input(0), step.input(1), step.output()
    batch, time = step.attributes["batch_axis"], step.attributes["time_axis"]
    table = step.temporary(np.int64, (x.shape[batch], x.shape[time]))
    made = elementwise_chain(_reversed_time, [iota(step, x.shape[time]), lengths.view((x.shape[batch], 1))], table)
    strides = [0] * len(x.shape)
    strides[batch], strides[time] = x.shape[time], 1
    lookup = Lookup(table, tuple(strides), x.strides[time], x.shape[time])
    moved = Operand(x, tuple(0 if axis == time else item for axis, item in enumerate(x.strides)), lookups=(lookup,))
    return [made, copy_launch(y.shape, moved, whole(y))]
