"""Pooling on the device: reductions over sliding windows."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.kernel.operand import Operand
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, on_cpu
from ...runtime.plan.rows import Fold, add, element, found, larger, smaller
from ..rules.sliding_window import Axis, window
from ..rules.sliding_window_cuda import per_window, seen
from .blocked_mean import blocked_mean
from .global_pool import norm_of
from .pool import _counts as counts
from .pool import average_pool, lp_pool, max_pool

on_cpu("device graphs do not use blocked channels", blocked_mean)

INT64 = np.dtype(np.int64)


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
    """Find the largest element of each window, then the first tap with that value and its index."""
    x, axes = step.input(0), _axes(step)
    kind = compute_dtype(x.dtype)
    lowest = -math.inf if kind.kind == "f" else float(np.iinfo(kind).min)
    taps = [axis.kernel for axis in axes]
    shape = (*x.shape[:2], *(axis.out for axis in axes))
    operands = {"x": seen(step, x, axes, fill=lowest)}
    best = Fold("best", element, larger)
    if not step.is_used(1):
        result = Result(_best, per_window(step.output(), len(taps)), per_row=True)
        return reduce_rows(shape, taps, operands, [best], [result], kind)
    order = "F" if step.attributes["storage_order"] else "C"
    spatial = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:], order="F" if order == "F" else "C")
    places = step.constant_buffer(np.ascontiguousarray(spatial)[None, None])
    table = seen(step, places, axes, fill=-1)
    operands["inside"] = Operand(places, (0, 0, *table.strides[2:]), lookups=table.lookups, fill=-1.0)
    values, numbers = step.output() if step.is_used(0) else step.temporary(x.dtype, shape), step.temporary(INT64, shape)
    folds = [best, Fold("tap", _tap, smaller, dtype=INT64), Fold("found", _place, larger, dtype=INT64)]
    results = [
        Result(_best, per_window(values, len(taps)), per_row=True),
        Result(found, per_window(numbers, len(taps)), per_row=True),
    ]
    planes = step.constant_buffer(np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(taps)))
    return [
        reduce_rows(shape, taps, operands, folds, results, kind),
        elementwise_chain(_numbered, [numbers, planes, step.constant_buffer(np.array(spatial.size))], step.output(1)),
    ]


def _best(best: float) -> float:
    return best


def _over(total: float, count: float) -> float:
    return total / count


@cuda(average_pool)
def average_pool_on_device(step: Step) -> Planned:
    """Divide the sum of each window by its number of elements."""
    x, axes, y = step.input(0), _axes(step), step.output()
    number = np.ones(1)
    for axis in axes:
        number = number[..., None] * counts(axis, bool(step.attributes["count_include_pad"]))
    kind = compute_dtype(x.dtype)
    sums = step.temporary(kind, y.shape)
    total = reduce_rows(
        y.shape,
        [axis.kernel for axis in axes],
        {"x": seen(step, x, axes)},
        [Fold("found", element, add)],
        [Result(found, per_window(sums, len(axes)), per_row=True)],
        kind,
    )
    return [
        total,
        elementwise_chain(
            _over, [sums, step.constant_buffer(number.reshape([axis.out for axis in axes]).astype(kind))], y
        ),
    ]


@cuda(lp_pool)
def lp_pool_on_device(step: Step) -> Planned:
    """Compute the p-norm of each window."""
    x, axes, y = step.input(0), _axes(step), step.output()
    result = Result(found, per_window(y, len(axes)), per_row=True)
    taps = [axis.kernel for axis in axes]
    return reduce_rows(
        y.shape,
        taps,
        {"x": seen(step, x, axes)},
        [norm_of(step.attributes["p"])],
        [result],
        compute_dtype(x.dtype),
        p=step.attributes["p"],
    )
