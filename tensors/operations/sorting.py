"""Sorting, and the largest elements."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL, U8
from ..core.expression import apply_all, cast, leaf, op_named
from ..core.lazy_tensor import LazyTensor
from ..core.registry import operation
from .operands import dim_of, fitting, integers, without_booleans


class Sorted(NamedTuple):
    """Elements in order, and where they were."""

    values: LazyTensor
    indices: LazyTensor


def _top(input: LazyTensor, k: int, dim: int, largest: bool) -> Sorted:
    op, x = op_named("TopK"), input.expression
    dtype = x.type.dtype
    near = U8 if dtype is BOOL else fitting(op, dtype)
    values, places = apply_all(
        op, [cast(x, near), integers([k])], {"axis": dim, "largest": int(largest), "sorted": 1}, 2
    )
    return Sorted(LazyTensor(cast(values, dtype)), LazyTensor(places))


@operation()
def topk(input: LazyTensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) elements along a dim in order, the first of equal ones first, and their indices."""
    without_booleans(input, "topk")
    if not input.ndim:
        return Sorted(input, LazyTensor(integers(0)))
    axis = dim_of(dim, input.ndim)
    if not 0 <= k <= input.shape[axis]:
        raise UsageError("E-TENSOR-VALUE", None, f"topk of {k} elements of {input.shape[axis]}")
    return _top(input, k, axis, largest)


@operation()
def sort(input: LazyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """All elements along a dim in order, equal ones in their order, and their indices."""
    if not input.ndim:
        return Sorted(input, LazyTensor(integers(0)))
    axis = dim_of(dim, input.ndim)
    return _top(input, input.shape[axis], axis, descending)


@operation()
def argsort(input: LazyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> LazyTensor:
    """The indices that sort a dim."""
    return sort(input, dim, descending).indices


@operation()
def median(input: LazyTensor, dim: int | None = None, keepdim: bool = False) -> LazyTensor | Sorted:
    """The middle element, the lower one of two; with `dim` of each row, and its index."""
    if dim is None:
        row = sort(input.reshape(-1), 0)
        return row.values[(input.numel() - 1) // 2]
    axis = dim_of(dim, input.ndim)
    found = sort(input, axis)
    middle = (input.shape[axis] - 1) // 2
    values, places = (part.narrow(axis, middle, 1) for part in found)
    return Sorted(values, places) if keepdim else Sorted(values.squeeze(axis), places.squeeze(axis))


@operation()
def unique(input: LazyTensor) -> LazyTensor:
    """The different elements in order; their values are computed at once."""
    return LazyTensor(leaf(np.unique(input.array())))


@operation()
def bincount(input: LazyTensor, minlength: int = 0) -> LazyTensor:
    """How often each integer from 0 on occurs; the values are computed at once."""
    return LazyTensor(leaf(np.bincount(input.array(), minlength=minlength)))


@operation()
def searchsorted(input: LazyTensor, values: LazyTensor, *, right: bool = False) -> LazyTensor:
    """Where values would be inserted into a sorted row; computed at once."""
    found = np.searchsorted(input.array(), values.array(), side="right" if right else "left")
    return LazyTensor(leaf(np.asarray(found, np.int64)))
