"""Pooling on the device: folds over windows that are looked up; and Col2Im, which adds up windows laid out as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.cuda.element import computing
from ...runtime.cuda.fold import Fold, Result, add, folded, larger, smaller
from ...runtime.cuda.operand import Lookup, Operand, over
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.cuda.zip import mapped
from ...runtime.launch import Buffer
from ..reduce.reduce import reduce_l1, reduce_l2, reduce_max, reduce_mean
from ..reduce.reduce_cuda import FOLDS, element, found, magnitude, reduced, root_of, square
from .conv_transpose import col2im
from .global_pool import global_average_pool, global_lp_pool, global_max_pool
from .lp_norm import lrn
from .pool import _counts as counts
from .pool import average_pool, lp_pool, max_pool
from .window import Axis, window

INT64 = np.dtype(np.int64)


def seen(step: Step, x: Buffer, axes: Sequence[Axis], first: int = 2, fill: float = 0.0) -> Operand:
    """The elements that windows see: over the axes of the output, then those of the taps; `fill` outside of the input."""
    rank, count = len(x.shape), len(axes)
    strides, lookups = [*x.strides, *[0] * count], []
    for place, axis in enumerate(axes):
        places = np.arange(axis.out)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation - axis.begin
        table = step.held(np.where((places >= 0) & (places < axis.size), places, -1))
        along = [0] * (rank + count)
        along[first + place], along[rank + place] = axis.kernel, 1
        strides[first + place] = 0
        lookups.append(Lookup(table, tuple(along), x.strides[first + place], axis.size, wraps=False))
    return Operand(x, tuple(strides), lookups=tuple(lookups), fill=fill)


def per_window(y: Buffer, taps: int) -> Operand:
    """An output over a box whose last axes are those of the taps."""
    return Operand(y, (*y.strides, *[0] * taps))


def _axes(step: Step) -> list[Axis]:
    names = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")
    x = step.input(0)
    return window(step.node.op.name, len(x.shape) - 2, *(step.attributes[name] for name in names)).axes(x.shape[2:])


def _tap(x: float, best: float, inside: int, index: int, count: int) -> int:
    return index if inside >= 0 and (x == best or (x != x and best != best)) else count


def _place(inside: int, index: int, tap: int) -> int:
    return inside if index == tap else -1


def _numbered(place: int, plane: int, size: int) -> int:
    return place + plane * size if place >= 0 else place


@cuda(max_pool)
def max_pool_on_device(step: Step) -> Planned:
    """The largest element of each window; then the first tap that has it, and its place."""
    x, axes = step.input(0), _axes(step)
    kind = computing(x.dtype)
    lowest = -math.inf if kind.kind == "f" else float(np.iinfo(kind).min)
    taps = [axis.kernel for axis in axes]
    shape = (*x.shape[:2], *(axis.out for axis in axes))
    operands = {"x": seen(step, x, axes, fill=lowest)}
    best = Fold("best", element, larger)
    if not step.wanted(1):
        result = Result(_best, per_window(step.output(), len(taps)), per_row=True)
        return folded(shape, taps, operands, [best], [result], kind)
    order = "F" if step.attributes["storage_order"] else "C"
    spatial = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:], order="F" if order == "F" else "C")
    places = step.held(np.ascontiguousarray(spatial)[None, None])
    table = seen(step, places, axes, fill=-1)
    operands["inside"] = Operand(places, (0, 0, *table.strides[2:]), lookups=table.lookups, fill=-1.0)
    values, numbers = step.output() if step.wanted(0) else step.temporary(x.dtype, shape), step.temporary(INT64, shape)
    folds = [best, Fold("tap", _tap, smaller, dtype=INT64), Fold("found", _place, larger, dtype=INT64)]
    results = [Result(_best, per_window(values, len(taps)), per_row=True), Result(found, per_window(numbers, len(taps)), per_row=True)]
    planes = step.held(np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(taps)))
    return [
        folded(shape, taps, operands, folds, results, kind),
        mapped(_numbered, [numbers, planes, step.held(np.array(spatial.size))], step.output(1)),
    ]


def _best(best: float) -> float:
    return best


def _over(total: float, count: float) -> float:
    return total / count


@cuda(average_pool)
def average_pool_on_device(step: Step) -> Planned:
    """Sums of windows over how many elements they have."""
    x, axes, y = step.input(0), _axes(step), step.output()
    number = np.ones(1)
    for axis in axes:
        number = number[..., None] * counts(axis, bool(step.attributes["count_include_pad"]))
    kind = computing(x.dtype)
    sums = step.temporary(kind, y.shape)
    total = folded(
        y.shape, [axis.kernel for axis in axes], {"x": seen(step, x, axes)}, [Fold("found", element, add)],
        [Result(found, per_window(sums, len(axes)), per_row=True)], kind,
    )
    return [total, mapped(_over, [sums, step.held(number.reshape([axis.out for axis in axes]).astype(kind))], y)]


def _powered(x: float, p: float) -> float:
    return math.pow(abs(x), p)


def _rooted(total: float, p: float) -> float:
    return math.pow(total, 1 / p)


def norm_of(p: float) -> Fold:
    """The fold of a p-norm, whose power is a number `p`."""
    return Fold("found", magnitude, add) if p == 1 else Fold("found", square, add, root_of) if p == 2 else Fold("found", _powered, add, _rooted)


@cuda(lp_pool)
def lp_pool_on_device(step: Step) -> Planned:
    """The p-norm of each window."""
    x, axes, y = step.input(0), _axes(step), step.output()
    result = Result(found, per_window(y, len(axes)), per_row=True)
    taps = [axis.kernel for axis in axes]
    return folded(y.shape, taps, {"x": seen(step, x, axes)}, [norm_of(step.attributes["p"])], [result], computing(x.dtype), p=step.attributes["p"])


@cuda(global_average_pool, global_max_pool)
def global_pool_on_device(step: Step) -> Planned:
    """The mean or the largest element of each channel."""
    x = step.input(0)
    kind = FOLDS[reduce_mean if step.node.op is global_average_pool else reduce_max]
    return reduced(x, step.output(), range(2, len(x.shape)), kind, computing(x.dtype))


@cuda(global_lp_pool)
def global_lp_pool_on_device(step: Step) -> Planned:
    """The p-norm of each channel."""
    x, p = step.input(0), step.attributes["p"]
    if p not in (1, 2):
        y = step.output()
        shape = (*x.shape[:2], math.prod(x.shape[2:]))
        result = Result(found, Operand(y, (y.strides[0], y.strides[1], 0)), per_row=True)
        return folded(shape[:2], shape[2:], {"x": over(x.view(shape), shape)}, [norm_of(p)], [result], computing(x.dtype), p=p)
    return reduced(x, step.output(), range(2, len(x.shape)), FOLDS[reduce_l1 if p == 1 else reduce_l2], computing(x.dtype))


def _normal(x: float, total: float, scale: float, bias: float, beta: float) -> float:
    return x / math.pow(bias + scale * total, beta)


@cuda(lrn)
def lrn_on_device(step: Step) -> Planned:
    """Sums of squares over channels, then the elements."""
    x, size, y = step.input(0), step.attributes["size"], step.output()
    channels = x.shape[1]
    near = Axis(channels, size, 1, 1, (size - 1) // 2, size // 2, channels)
    kind = computing(x.dtype)
    sums = step.temporary(kind, x.shape)
    total = folded(
        x.shape, [size], {"x": seen(step, x, [near], 1)}, [Fold("found", square, add)], [Result(found, per_window(sums, 1), per_row=True)], kind,
    )
    scale, bias, beta = step.attributes["alpha"] / size, step.attributes["bias"], step.attributes["beta"]
    return [total, mapped(_normal, [x, sums], y, scale, bias, beta)]


@cuda(col2im)
def col2im_on_device(step: Step) -> Planned:
    """For each place and tap the window that has it there, if there is one."""
    x, y = step.input(0), step.output()
    image, block = step.constant(1), step.constant(2)
    if image is None or block is None:
        return "its lengths are computed"
    kernel = [int(item) for item in block.reshape(-1)]
    axes = window("Col2Im", len(kernel), kernel, *(step.attributes[name] for name in ("strides", "pads", "dilations"))).axes(y.shape[2:])
    columns = x.view((*y.shape[:2], *kernel, *(axis.out for axis in axes)))
    count = len(axes)
    strides = [*columns.strides[:2], *[0] * count, *columns.strides[2 : 2 + count]]
    lookups = []
    for place, axis in enumerate(axes):
        moved = np.arange(axis.size)[:, None] + axis.begin - np.arange(axis.kernel) * axis.dilation
        inside = (moved % axis.stride == 0) & (moved >= 0) & (moved < axis.out * axis.stride)
        along = [0] * (2 + 2 * count)
        along[2 + place], along[2 + count + place] = axis.kernel, 1
        table = step.held(np.where(inside, moved // axis.stride, -1))
        lookups.append(Lookup(table, tuple(along), columns.strides[2 + count + place], axis.out, wraps=False))
    operand = Operand(columns, tuple(strides), lookups=tuple(lookups))
    result = Result(found, per_window(y, count), per_row=True)
    return folded(y.shape, kernel, {"x": operand}, [Fold("found", element, add)], [result], computing(x.dtype))
