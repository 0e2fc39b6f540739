"""Reductions, ArgMax and ArgMin on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import permuted, split
from ...runtime.cuda.kernel.reduce import Fold, Result, add, larger, reduce_rows, smaller, times
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.ir.op import Op
from ...runtime.plan.kernel_api import Buffer
from .arg_min_max import arg_max, arg_min
from .reduce import (
    reduce_l1,
    reduce_l2,
    reduce_log_sum,
    reduce_log_sum_exp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reduce_sum_square,
)

INT64 = np.dtype(np.int64)


def element(x: float) -> float:
    """The element itself."""
    return x


def magnitude(x: float) -> float:
    """Without its sign."""
    return abs(x)


def square(x: float) -> float:
    """x * x."""
    return x * x


def power(x: float, most: float) -> float:
    """exp(x), relative to the largest one."""
    return math.exp(x - most)


def mean_of(total: float, count: int) -> float:
    """The mean."""
    return total / count


def root_of(total: float) -> float:
    """The square root."""
    return math.sqrt(total)


def logarithm_of(total: float) -> float:
    """The natural logarithm."""
    return math.log(total)


def finite_of(total: float) -> float:
    """The total where it is finite, else 0."""
    return total if total - total == 0 else 0 * (total == 0)


def logarithm_above(total: float, most: float) -> float:
    """Of a sum that is relative to exp(most)."""
    return math.log(total) + most


def found(found: float) -> float:
    """The number of the row that is called so."""
    return found


FOLDS: dict[Op, tuple[Fold, ...]] = {
    reduce_sum: (Fold("found", element, add),),
    reduce_mean: (Fold("found", element, add, mean_of),),
    reduce_prod: (Fold("found", element, times),),
    reduce_max: (Fold("found", element, larger),),
    reduce_min: (Fold("found", element, smaller),),
    reduce_l1: (Fold("found", magnitude, add),),
    reduce_l2: (Fold("found", square, add, root_of),),
    reduce_sum_square: (Fold("found", square, add),),
    reduce_log_sum: (Fold("found", element, add, logarithm_of),),
    reduce_log_sum_exp: (Fold("most", element, larger, finite_of), Fold("found", power, add, logarithm_above)),
}
ROOTED = frozenset([reduce_l2, reduce_log_sum, reduce_log_sum_exp, reduce_mean])
"""Operators whose results are not integers."""


def reduced(x: Buffer, y: Buffer, axes: Sequence[int], folds: Sequence[Fold], compute: np.dtype[np.generic]) -> Planned:
    """Fold along axes into an output that is contiguous over the others."""
    order, kept, along = split(x.shape, axes)
    target = Buffer(y.dtype, (*kept, *[1] * len(along)), y.allocation, y.offset)
    result = Result(found, permuted(target, target.shape, range(len(order))), per_row=True)
    return reduce_rows(kept, along, {"x": permuted(x, x.shape, order)}, folds, [result], compute)


@cuda(*FOLDS)
def reduce_on_device(step: Step) -> Planned:
    """Axes have to be known ahead."""
    x, y = step.input(0), step.output()
    axes = step.constant(1)
    if axes is None and step.optional_input(1) is not None:
        return "its axes are not constants"
    if axes is None or not axes.size:
        chosen = [] if step.attributes["noop_with_empty_axes"] else list(range(len(x.shape)))
    else:
        chosen = [int(axis) for axis in axes.reshape(-1)]
    compute = compute_dtype(x.dtype)
    if compute.kind in "iub":
        compute = np.dtype(np.float64) if step.node.op in ROOTED else compute if compute == np.uint64 else INT64
    return reduced(x, y, chosen, FOLDS[step.node.op], compute)


def _place(x: float, best: float, index: int, count: int) -> int:
    return index if x == best or (x != x and best != best) else count


def _last_place(x: float, best: float, index: int) -> int:
    return index if x == best or (x != x and best != best) else -1


@cuda(arg_max, arg_min)
def arg_on_device(step: Step) -> Planned:
    """The extreme of a row, then the first or last place where it stands."""
    x, y = step.input(0), step.output()
    best = Fold("best", element, larger if step.node.op is arg_max else smaller)
    last = step.attributes["select_last_index"]
    place = Fold("found", _last_place, larger, dtype=INT64) if last else Fold("found", _place, smaller, dtype=INT64)
    return reduced(x, y, [step.attributes["axis"]], [best, place], compute_dtype(x.dtype))
