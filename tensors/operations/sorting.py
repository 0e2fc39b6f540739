"""Sorting, and the largest elements."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL, F32, U8
from ..core.expression import apply, apply_all, cast, leaf, op_named, shape_error
from ..core.registry import operation
from ..core.tensor import Tensor
from .operands import dim_of, fitting, integers, require_real, scalar, without_booleans


class Sorted(NamedTuple):
    """Elements in order, and where they were."""

    values: Tensor
    indices: Tensor


def _top(input: Tensor, k: int, dim: int, largest: bool) -> Sorted:
    op, x = op_named("TopK"), input.expression
    dtype = x.type.dtype
    near = U8 if dtype is BOOL else fitting(op, dtype)
    values, places = apply_all(
        op, [cast(x, near), integers([k])], {"axis": dim, "largest": int(largest), "sorted": 1}, 2
    )
    return Sorted(Tensor(cast(values, dtype)), Tensor(places))


@operation()
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) elements along a dim in order, the first of equal ones first, and their indices."""
    without_booleans(input, "topk")
    if not input.ndim:
        return Sorted(input, Tensor(integers(0)))
    axis = dim_of(dim, input.ndim)
    if not 0 <= k <= input.shape[axis]:
        raise UsageError("E-TENSOR-VALUE", None, f"topk of {k} elements of {input.shape[axis]}")
    return _top(input, k, axis, largest)


@operation()
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """All elements along a dim in order, equal ones in their order, and their indices."""
    if not input.ndim:
        return Sorted(input, Tensor(integers(0)))
    axis = dim_of(dim, input.ndim)
    return _top(input, input.shape[axis], axis, descending)


@operation()
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort a dim."""
    return sort(input, dim, descending).indices


@operation()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element, the lower one of two, or NaN if there is one; with `dim` of each row, and its index."""
    if dim is None:
        if not input.numel() and input.dtype.kind == "float":
            return Tensor(leaf(np.array(np.nan, input.dtype.as_numpy())))
        found = median(input.reshape(-1), 0)
        assert isinstance(found, Sorted)
        return found.values
    axis = dim_of(dim, input.ndim)
    if not input.ndim:
        return Sorted(input, Tensor(integers(0)))
    if not input.shape[axis]:
        raise UsageError("E-TENSOR-SHAPE", None, f"dim {axis} of {list(input.shape)} is empty")
    middle = (input.shape[axis] - 1) // 2
    values, places = (part.narrow(axis, middle, 1) for part in sort(input, axis))
    if input.dtype.kind == "float":  # NaN is the last of the order, and the first of the input is taken
        last = Tensor(scalar(float("nan"), input.dtype))
        missing = input.isnan()
        some = missing.any(axis, True)
        first = missing.to(U8).argmax(axis, True)
        values = Tensor(apply(op_named("Where"), [each.expression for each in (some, last, values)]))
        places = Tensor(apply(op_named("Where"), [each.expression for each in (some, first, places)]))
    return Sorted(values, places) if keepdim else Sorted(values.squeeze(axis), places.squeeze(axis))


@operation()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, or entries of a dim, in order; computed at once.

    Args:
        return_inverse: also which of them each one is.
        return_counts: also how often each occurs.
    """
    require_real("unique", input)
    axis = None if dim is None else dim_of(dim, input.ndim)
    array = input.array()
    exact = array.astype(np.float32) if array.dtype.itemsize == 2 and input.dtype.kind == "float" else array
    distinct: Any = np.unique
    found = distinct(exact, return_inverse=return_inverse, return_counts=return_counts, axis=axis, equal_nan=False)
    if not (return_inverse or return_counts):
        return Tensor(leaf(found.astype(array.dtype)))
    values, *numbers = found
    if return_inverse:
        numbers[0] = numbers[0].reshape(array.shape if axis is None else (-1,))
    return (Tensor(leaf(values.astype(array.dtype))), *(Tensor(leaf(number.astype(np.int64))) for number in numbers))


@operation()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Number of times that each integer from 0 on occurs, or the sum of its weights; computed at once."""
    if weights is None:
        return Tensor(leaf(np.bincount(input.array(), minlength=minlength)))
    given = weights.detach().array()
    found = np.bincount(input.array(), given.astype(np.float64), minlength)
    return Tensor(leaf(found.astype(given.dtype if weights.dtype is F32 else np.float64)))


@operation()
def searchsorted(
    input: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Indices at which values would be inserted into a sorted row, or each row into one of rows; computed at once.

    Args:
        out_int32: i32 in place of i64.
        right, side: after equal elements, with right=True or side="right".
        sorter: the indices that sort the rows.
    """
    require_real("searchsorted", input, values)
    rows, wanted = (each.array() if isinstance(each, Tensor) else np.asarray(each) for each in (input, values))
    if sorter is not None:
        rows = np.take_along_axis(rows, sorter.array(), -1)
    kind = np.int32 if out_int32 else np.int64
    where: Literal["left", "right"] = "right" if right or side == "right" else "left"
    if rows.ndim < 2:
        return Tensor(leaf(np.asarray(np.searchsorted(rows, wanted, side=where), kind)))
    if rows.shape[:-1] != wanted.shape[:-1]:
        raise shape_error(f"searchsorted: values of shape {list(wanted.shape)} in rows of shape {list(rows.shape)}")
    found = np.empty(wanted.shape, kind)
    for index in np.ndindex(rows.shape[:-1]):
        found[index] = np.searchsorted(rows[index], wanted[index], side=where)
    return Tensor(leaf(found))
