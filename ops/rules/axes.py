"""Axis and length checks of operators that move elements, at run time and in shape inference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import STRING, DType, of_numpy


def input_error(
    operator: str, why: str, code: str = "E-OP-SHAPE", *, expected: Any = None, found: Any = None
) -> UsageError:
    """The error for inputs that violate the operator's definition; to be raised by the caller."""
    return UsageError(
        code, None, f"{operator}: {why}", expected=expected, found=found, hint="Correct the model or the inputs"
    )


def axis_in(operator: str, axis: int, rank: int) -> int:
    """`axis` counted from the front; UsageError where an array of that rank has no such axis."""
    if not -rank <= axis < rank:
        raise input_error(
            operator, "the axis does not exist", "E-OP-AXIS", expected=f"from {-rank} to {rank - 1}", found=axis
        )
    return int(axis) % rank


def axes_in(operator: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front; UsageError where one does not exist or is there twice."""
    found = tuple(axis_in(operator, int(axis), rank) for axis in axes)
    if len(set(found)) < len(found):
        raise input_error(operator, "an axis is given twice", "E-OP-AXIS", found=found)
    return found


def axis_of(node: Inference, axis: int, rank: int) -> int:
    """`axis` counted from the front, in inference."""
    if not -rank <= axis < rank:
        node.fail(f"axis {axis} does not exist in {counted(rank, 'dim')}")
    return axis % rank


def axes_of(node: Inference, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in inference."""
    found = tuple(axis_of(node, int(axis), rank) for axis in axes)
    if len(set(found)) < len(found):
        node.fail(f"axes {list(found)} are not distinct")
    return found


def constants(dims: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """The dims as integers; None if one is symbolic."""
    if dims is None:
        return None
    numbers = tuple(dim for dim in dims if isinstance(dim, int))
    return numbers if len(numbers) == len(dims) else None


def elements(node: Inference, index: int) -> tuple[Dim, ...] | None:
    """Elements of an integer input, unknown ones where only their number is known."""
    known = node.data(index)
    if known is not None:
        return known
    shape = node.shape(index)
    return (
        (None,) * shape[0]
        if shape is not None and len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= 64
        else None
    )


def unknown_along_axis(node: Inference) -> None:
    """Any number of entries along the attribute `axis`, or of elements where it is absent."""
    shape, axis = node.shape(0), node.attributes["axis"]
    if axis is None:
        node.set(0, node.dtype(0), (None,))
    elif shape is not None:
        at = axis_of(node, axis, len(shape))
        node.set(0, node.dtype(0), (*shape[:at], None, *shape[at + 1 :]))
    else:
        node.set(0, node.dtype(0), None)


def matrices(node: Inference) -> None:
    """The input's dtype and shape, which has at least two dims."""
    shape = node.shape(0)
    if shape is not None and len(shape) < 2:
        node.fail(f"the input has {counted(len(shape), 'dim')}, at least 2 are needed")
    node.set(0, node.dtype(0), shape)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of lengths; unknown where it is neither a number nor one of the symbols."""
    return quotient(dims, ())


def quotient(dims: Iterable[Dim], others: Iterable[Dim]) -> Dim:
    """The length that makes a product of `others` equal to that of `dims`; None where it is unknown or does not
    exist."""
    above, below = list(dims), list(others)
    if None in above or None in below:
        return 0 if 0 in above and not below else None
    for dim in list(below):
        if isinstance(dim, str) and dim in above:
            above.remove(dim)
            below.remove(dim)
    symbols = [dim for dim in above if isinstance(dim, str)]
    total, part = (math.prod(dim for dim in side if isinstance(dim, int)) for side in (above, below))
    if any(isinstance(dim, str) for dim in below) or part == 0:
        return None
    if total == 0 or not symbols:
        return total // part if total % part == 0 else None
    return symbols[0] if len(symbols) == 1 and total == part else None


def dtype_of(array: np.ndarray) -> DType:
    """Our dtype of an array, text included."""
    return STRING if array.dtype.kind in "OUT" else of_numpy(array.dtype)


def zero(dtype: np.dtype) -> Any:
    """The default fill value of a dtype: zero, or the empty string."""
    return "" if dtype.kind == "O" else np.zeros((), dtype)
