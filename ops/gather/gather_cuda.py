"""Gather and scatter operators on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import split
from ...runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.scatter import scatter_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer
from ...runtime.plan.rows import add, times
from .gather import gather, gather_elements, gather_nd
from .scatter import scatter, scatter_elements, scatter_nd, tensor_scatter

OUTSIDE = "an index of {} is outside of its axis"
INT64 = np.dtype(np.int64)


def whole(buffer: Buffer) -> Operand:
    """A buffer over its own box."""
    return over(buffer, buffer.shape)


def looked_up(step: Step, table: Buffer, strides: tuple[int, ...], stride: int, length: int) -> Lookup:
    """A table of indices, which are said to be outside when they are."""
    return Lookup(table, strides, stride, length, flag=step.flag(OUTSIDE.format(step.node.op.name)))


@cuda(gather)
def gather_on_device(step: Step) -> Planned:
    """Read entries of one axis through a lookup of indices."""
    data, indices, y = step.input(0), step.input(1), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    before, after = axis, len(data.shape) - axis - 1
    strides = (*data.strides[:axis], *[0] * len(indices.shape), *data.strides[axis + 1 :])
    table = (*[0] * before, *indices.strides, *[0] * after)
    return copy_launch(
        y.shape,
        Operand(data, strides, lookups=(looked_up(step, indices, table, data.strides[axis], data.shape[axis]),)),
        whole(y),
    )


@cuda(gather_elements)
def gather_elements_on_device(step: Step) -> Planned:
    """Read each element by its own index along the axis."""
    data, indices, y = step.input(0), step.input(1), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    strides = tuple(0 if other == axis else item for other, item in enumerate(data.strides))
    lookup = looked_up(step, indices, indices.strides, data.strides[axis], data.shape[axis])
    return copy_launch(y.shape, Operand(data, strides, lookups=(lookup,)), whole(y))


def _tuples(step: Step, data: Buffer, indices: Buffer, rank: int, batch: int) -> tuple[Lookup, ...]:
    """One table for each index of a tuple, over the axes of the indices but the last, followed by those that the tuples
    leave."""
    table = (*indices.strides[:-1], *[0] * (rank - len(indices.shape) + 1))
    return tuple(
        looked_up(
            step,
            indices.view((indices.count - place,), place),
            table,
            data.strides[batch + place],
            data.shape[batch + place],
        )
        for place in range(indices.shape[-1])
    )


@cuda(gather_nd)
def gather_nd_on_device(step: Step) -> Planned:
    """Read entries by tuples, with one lookup per axis of a tuple."""
    data, indices, y = step.input(0), step.input(1), step.output()
    batch, depth = step.attributes["batch_dims"], indices.shape[-1]
    strides = (*data.strides[:batch], *[0] * (len(indices.shape) - 1 - batch), *data.strides[batch + depth :])
    return copy_launch(
        y.shape, Operand(data, strides, lookups=_tuples(step, data, indices, len(y.shape), batch)), whole(y)
    )


def replaced(old: Any, new: Any) -> Any:
    """The new one."""
    return new


def _largest(old: Any, new: Any) -> Any:
    return new if new > old or new != new else old


def _smallest(old: Any, new: Any) -> Any:
    return new if new < old or new != new else old


COMBINE: dict[str, Callable[..., Any]] = {"none": replaced, "add": add, "mul": times, "max": _largest, "min": _smallest}


def _written(
    step: Step, data: Buffer, apart: list[int], along: list[int], target: Operand, updates: Operand
) -> Planned:
    kind = COMBINE.get(step.attributes.get("reduction", "none"))
    if kind is None:
        return "unknown reduction"
    copy = copy_launch(data.shape, whole(data), whole(target.buffer))
    return [copy, scatter_launch(apart, along, target, updates, kind, compute_dtype(data.dtype))]


@cuda(scatter_elements, scatter)
def scatter_elements_on_device(step: Step) -> Planned:
    """Apply the updates of one column along the axis in order."""
    data, indices, updates, y = step.input(0), step.input(1), step.input(2), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    order, apart, along = split(indices.shape, [axis])
    table = tuple(indices.strides[other] for other in order)
    places = tuple(0 if other == axis else y.strides[other] for other in order)
    target = Operand(y, places, lookups=(looked_up(step, indices, table, y.strides[axis], y.shape[axis]),))
    return _written(
        step, data, apart, along, target, Operand(updates, tuple(updates.strides[other] for other in order))
    )


@cuda(scatter_nd)
def scatter_nd_on_device(step: Step) -> Planned:
    """Apply index tuples in order, with one thread per updated element."""
    data, indices, updates, y = step.input(0), step.input(1), step.input(2), step.output()
    count, depth = len(indices.shape) - 1, indices.shape[-1]
    rank = len(updates.shape)
    order = [*range(count, rank), *range(count)]
    lookups = _tuples(step, data, indices, rank, 0)
    lookups = tuple(
        Lookup(item.table, tuple(item.strides[axis] for axis in order), item.stride, item.length, flag=item.flag)
        for item in lookups
    )
    target = Operand(y, (*y.strides[depth:], *[0] * count), lookups=lookups)
    source = Operand(updates, tuple(updates.strides[axis] for axis in order))
    return _written(step, data, list(updates.shape[count:]), list(updates.shape[:count]), target, source)


@cuda(tensor_scatter)
def tensor_scatter_on_device(step: Step) -> Planned:
    """Write each sequence's rows to a cache, in place if nothing else uses it."""
    past, update, first = step.input(0), step.input(1), step.optional_input(2)
    y = step.outputs[0] = past if step.may_overwrite(past) else step.output()
    axis = step.attributes["axis"] % len(past.shape)
    batch, length, longest = past.shape[0], update.shape[axis], past.shape[axis]
    circular = step.attributes["mode"] == "circular"
    start = first if first is not None else step.constant_buffer(np.zeros(batch, np.int64))
    table = step.temporary(INT64, (batch, length))
    iota = step.constant_buffer(np.arange(length))
    made = elementwise_chain(
        _around if circular else add,
        [start.view((batch, 1)), iota, *([step.constant_buffer(np.array(longest))] if circular else [])],
        table,
    )
    strides = [0] * len(update.shape)
    strides[0], strides[axis] = length, 1
    places = tuple(0 if other == axis else item for other, item in enumerate(y.strides))
    target = Operand(y, places, lookups=(looked_up(step, table, tuple(strides), y.strides[axis], longest),))
    kept = [] if y is past else [copy_launch(past.shape, whole(past), whole(y))]
    return [made, *kept, copy_launch(update.shape, whole(update), target)]


def _around(start: int, place: int, longest: int) -> int:
    return (start + place) % longest
