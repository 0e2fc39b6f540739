"""Gather, scatter, TopK and cumulative operators on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.cuda.axes import split
from ...runtime.cuda.element import computing
from ...runtime.cuda.fold import Fold, Result, add, folded, times
from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.operand import Lookup, Operand, over
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.cuda.scatter import scanned, scattered
from ...runtime.cuda.zip import Chain, copied, mapped
from ...runtime.launch import Buffer
from ..math.cumulative import cum_prod, cum_sum
from .gather import gather, gather_elements, gather_nd
from .scatter import scatter, scatter_elements, scatter_nd, tensor_scatter
from .top_k import top_k

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
    """The axis is looked up."""
    data, indices, y = step.input(0), step.input(1), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    before, after = axis, len(data.shape) - axis - 1
    strides = (*data.strides[:axis], *[0] * len(indices.shape), *data.strides[axis + 1 :])
    table = (*[0] * before, *indices.strides, *[0] * after)
    return copied(y.shape, Operand(data, strides, lookups=(looked_up(step, indices, table, data.strides[axis], data.shape[axis]),)), whole(y))


@cuda(gather_elements)
def gather_elements_on_device(step: Step) -> Planned:
    """Every element has its own index along the axis."""
    data, indices, y = step.input(0), step.input(1), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    strides = tuple(0 if other == axis else item for other, item in enumerate(data.strides))
    lookup = looked_up(step, indices, indices.strides, data.strides[axis], data.shape[axis])
    return copied(y.shape, Operand(data, strides, lookups=(lookup,)), whole(y))


def _tuples(step: Step, data: Buffer, indices: Buffer, rank: int, batch: int) -> tuple[Lookup, ...]:
    """One table for each index of a tuple, over the axes of the indices but the last, followed by those that the tuples leave."""
    table = (*indices.strides[:-1], *[0] * (rank - len(indices.shape) + 1))
    return tuple(
        looked_up(step, indices.view((indices.count - place,), place), table, data.strides[batch + place], data.shape[batch + place])
        for place in range(indices.shape[-1])
    )


@cuda(gather_nd)
def gather_nd_on_device(step: Step) -> Planned:
    """One table for each index of a tuple."""
    data, indices, y = step.input(0), step.input(1), step.output()
    batch, depth = step.attributes["batch_dims"], indices.shape[-1]
    strides = (*data.strides[:batch], *[0] * (len(indices.shape) - 1 - batch), *data.strides[batch + depth :])
    return copied(y.shape, Operand(data, strides, lookups=_tuples(step, data, indices, len(y.shape), batch)), whole(y))


def replaced(old: Any, new: Any) -> Any:
    """The new one."""
    return new


def _largest(old: Any, new: Any) -> Any:
    return new if new > old or new != new else old


def _smallest(old: Any, new: Any) -> Any:
    return new if new < old or new != new else old


COMBINE: dict[str, Callable[..., Any]] = {"none": replaced, "add": add, "mul": times, "max": _largest, "min": _smallest}


def _written(step: Step, data: Buffer, apart: list[int], along: list[int], target: Operand, updates: Operand) -> Planned:
    kind = COMBINE.get(step.attributes.get("reduction", "none"))
    if kind is None:
        return "there is no such reduction"
    copy = copied(data.shape, whole(data), whole(target.buffer))
    return [copy, scattered(apart, along, target, updates, kind, computing(data.dtype))]


@cuda(scatter_elements, scatter)
def scatter_elements_on_device(step: Step) -> Planned:
    """Updates of one column, along the axis, follow each other."""
    data, indices, updates, y = step.input(0), step.input(1), step.input(2), step.output()
    axis = step.attributes["axis"] % len(data.shape)
    order, apart, along = split(indices.shape, [axis])
    table = tuple(indices.strides[other] for other in order)
    places = tuple(0 if other == axis else y.strides[other] for other in order)
    target = Operand(y, places, lookups=(looked_up(step, indices, table, y.strides[axis], y.shape[axis]),))
    return _written(step, data, apart, along, target, Operand(updates, tuple(updates.strides[other] for other in order)))


@cuda(scatter_nd)
def scatter_nd_on_device(step: Step) -> Planned:
    """Tuples follow each other; each element of what they name has a thread."""
    data, indices, updates, y = step.input(0), step.input(1), step.input(2), step.output()
    count, depth = len(indices.shape) - 1, indices.shape[-1]
    rank = len(updates.shape)
    order = [*range(count, rank), *range(count)]
    lookups = _tuples(step, data, indices, rank, 0)
    turned = tuple(
        Lookup(item.table, tuple(item.strides[axis] for axis in order), item.stride, item.length, flag=item.flag) for item in lookups
    )
    target = Operand(y, (*y.strides[depth:], *[0] * count), lookups=turned)
    source = Operand(updates, tuple(updates.strides[axis] for axis in order))
    return _written(step, data, list(updates.shape[count:]), list(updates.shape[:count]), target, source)


@cuda(tensor_scatter)
def tensor_scatter_on_device(step: Step) -> Planned:
    """A table of places for each sequence; what was there stays where it is if nothing else needs it."""
    past, update, first = step.input(0), step.input(1), step.given(2)
    y = step.outputs[0] = past if step.spare(past) else step.output()
    axis = step.attributes["axis"] % len(past.shape)
    batch, length, longest = past.shape[0], update.shape[axis], past.shape[axis]
    circular = step.attributes["mode"] == "circular"
    start = first if first is not None else step.held(np.zeros(batch, np.int64))
    table = step.temporary(INT64, (batch, length))
    iota = step.held(np.arange(length))
    made = mapped(_around if circular else add, [start.view((batch, 1)), iota, *([step.held(np.array(longest))] if circular else [])], table)
    strides = [0] * len(update.shape)
    strides[0], strides[axis] = length, 1
    places = tuple(0 if other == axis else item for other, item in enumerate(y.strides))
    target = Operand(y, places, lookups=(looked_up(step, table, tuple(strides), y.strides[axis], longest),))
    kept = [] if y is past else [copied(past.shape, whole(past), whole(y))]
    return [made, *kept, copied(update.shape, whole(update), target)]


def _around(start: int, place: int, longest: int) -> int:
    return (start + place) % longest


@cuda(cum_sum, cum_prod)
def cumulated_on_device(step: Step) -> Planned:
    """One thread for each row."""
    x, axes, y = step.input(0), step.constant(1), step.output()
    if axes is None:
        return "its axis is computed"
    order, apart, along = split(x.shape, [int(axes.reshape(-1)[0])])
    ends = [[item.strides[axis] for axis in order] for item in (x, y)]
    offset = 0
    if step.attributes["reverse"]:
        offset = (along[0] - 1) * ends[0][-1]
        for strides in ends:
            strides[-1] = -strides[-1]
    join = add if step.node.op is cum_sum else times
    source, target = (Operand(item, tuple(strides), offset) for item, strides in zip((x, y), ends, strict=True))
    return scanned(apart, along[0], source, target, join, computing(x.dtype), bool(step.attributes["exclusive"]))


def _better(x: Any, other: Any, index: int, place: int) -> int:
    """Whether another element comes before one: NaN counts as the largest, equal ones keep their order."""
    if x != x:
        return 1 if other != other and index < place else 0
    return 1 if other > x or other != other or (other == x and index < place) else 0


def _worse(x: Any, other: Any, index: int, place: int) -> int:
    if other != other:
        return 1 if x != x and index < place else 0
    return 1 if x != x or other < x or (other == x and index < place) else 0


def _rank(rank: int) -> int:
    return rank


@cuda(top_k)
def top_k_on_device(step: Step) -> Planned:
    """The rank of an element is how many come before it; those below k are written to the place of their rank."""
    x, k = step.input(0), step.constant(1)
    if k is None:
        return "k is computed"
    order, apart, along = split(x.shape, [step.attributes["axis"]])
    count, kept = along[0], int(k.reshape(-1)[0])
    strides = [x.strides[axis] for axis in order]
    ranks = step.temporary(INT64, (*apart, count))
    one = Operand(x, (*strides, 0))
    other = Operand(x, (*strides[:-1], 0, strides[-1]))
    place = Operand(step.held(np.arange(count)), (*[0] * len(apart), 1, 0))
    fold = Fold("rank", _better if step.attributes["largest"] else _worse, add, dtype=INT64)
    result = Result(_rank, Operand(ranks, (*ranks.strides, 0)), per_row=True)
    operands = {"x": one, "other": other, "place": place}
    launches: list[Launch | Chain] = [folded([*apart, count], [count], operands, [fold], [result], computing(x.dtype))]
    lengths = (*apart, count)
    for index in range(2):
        if step.wanted(index):
            y = step.output(index)
            steps = [y.strides[axis] for axis in order]
            target = Operand(y, (*steps[:-1], 0), lookups=(Lookup(ranks, ranks.strides, steps[-1], kept, wraps=False),))
            source = Operand(x, tuple(strides)) if index == 0 else Operand(step.held(np.arange(count)), (*[0] * len(apart), 1))
            launches.append(copied(lengths, source, target))
    return launches
