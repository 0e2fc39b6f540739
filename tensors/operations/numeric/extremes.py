"""Extremes without NaN, running extremes and sums, and differences of neighbours."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.tensor.dtype import BOOL, I64
from ...core.registry import FUNCTIONS, operation
from ...core.tensor import Tensor
from ..creation import arange
from ..indexing import gather, where
from ..operands import dim_of, promoted
from ..reduction import Extremes


def _without_nan(name: str, document: str, other_one: str) -> None:
    def made(input: Any, other: Any) -> Tensor:
        one, two = map(Tensor, promoted([input, other]))
        found: Tensor = FUNCTIONS[other_one](one, two)
        if one.dtype.kind != "float":
            return found
        return where(one.isnan(), two, where(two.isnan(), one, found))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


_without_nan("fmax", "The larger of two elements, or the one that is not NaN.", "maximum")
_without_nan("fmin", "The smaller of two elements, or the one that is not NaN.", "minimum")


def _running(name: str, document: str, wins: str) -> None:
    def made(input: Tensor, dim: int) -> Extremes:
        axis = dim_of(dim, input.ndim)
        if not input.ndim:
            return Extremes(input, arange(1).reshape(()))
        length = input.shape[axis]
        x = input.detach()
        values = x.to(I64) if x.dtype is BOOL else x
        places = arange(length).reshape([-1 if each == axis else 1 for each in range(x.ndim)]).broadcast_to(x.shape)
        step = 1
        while step < length:  # each place knows of twice as many before it
            before, later = (part.narrow(axis, 0, length - step) for part in (values, places))
            now, here = (part.narrow(axis, step, length - step) for part in (values, places))
            kept = getattr(now, wins)(before)
            if x.dtype.kind == "float":
                kept = (kept | now.isnan()) & (now.isnan() | before.isnan().logical_not())
            values = FUNCTIONS["cat"]([values.narrow(axis, 0, step), where(kept, now, before)], axis)
            places = FUNCTIONS["cat"]([places.narrow(axis, 0, step), where(kept, here, later)], axis)
            step *= 2
        return Extremes(gather(input, axis, places), places)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


_running("cummax", "The largest element up to each one, the last of equal ones, and its index.", "ge")
_running("cummin", "The smallest element up to each one, the last of equal ones, and its index.", "le")


@operation()
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(sum(exp(x))) of all elements up to each one."""
    axis = dim_of(dim, input.ndim)
    if not input.ndim or not input.numel():
        return input.clone()
    if input.dtype.kind == "complex":
        return FUNCTIONS["stack"](list(itertools.accumulate(input.unbind(axis), _log_of_sum)), axis)
    most = input.detach().real.amax(axis, True)
    most = where(most.isfinite(), most, 0.0)
    return (input - most).exp().cumsum(axis).log() + most


def _log_of_sum(one: Tensor, two: Tensor) -> Tensor:
    """log(exp(one) + exp(two)) of complex numbers, whose angle goes on from the number with the larger real part."""
    first = two.real < one.real
    large, small = where(first, one, two), where(first, two, one)
    nothing = large.real == -math.inf
    return where(nothing, large, (1 + where(nothing, large.new_zeros(()), small - large).exp()).log() + large)


@operation()
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along a dim, `n` times over; of booleans whether they differ."""
    if not input.ndim or n < 0:
        why = f"diff of {n} times of a tensor of shape {list(input.shape)}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected="at least one dim, and a number of at least 0")
    axis = dim_of(dim, input.ndim)
    if not n:
        return input.clone()
    found = FUNCTIONS["cat"]([each for each in (prepend, input, append) if each is not None], axis)
    for _ in range(n):
        length = max(found.shape[axis] - 1, 0)
        later, before = (found.narrow(axis, min(start, found.shape[axis]), length) for start in (1, 0))
        found = later ^ before if found.dtype is BOOL else later - before
    return found
