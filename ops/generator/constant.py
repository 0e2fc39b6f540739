"""Constant: a tensor stored in the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import MAX_DATA, Inference
from ..rules.axes import dtype_of, input_error


def infer_constant(node: Inference) -> None:
    """Dtype, shape and elements of the tensor."""
    array = _array(**node.attributes)
    known = array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= MAX_DATA
    node.set(0, dtype_of(array), array.shape, data=[int(item) for item in array.reshape(-1)] if known else None)


def _array(
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> np.ndarray:
    tensor = sparse_value if value is None else value
    if tensor is not None:
        return np.asarray(tensor)
    for given, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ):
        if given is not None:
            return np.array(given, dtype)
    raise input_error("Constant", "it has no value", "E-OP-ATTRIBUTE")


@op(
    "Constant",
    since=25,
    types="",
    infer=infer_constant,
    examples=[
        case(value=np.array([[1, 2, 3]], np.float32)),
        case(value_float=1.5),
        case(value_floats=[1.5, 2.5]),
        case(value_int=3),
        case(value_ints=[1, 2, 3]),
        case(value_string="text"),
        case(value_strings=["a", "b"]),
        case(value=np.zeros((0, 3), np.int32)),
    ],
)
def constant(
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> np.ndarray:
    """The one value that is given; sparse ones are held dense."""
    return _array(value, sparse_value, value_float, value_floats, value_int, value_ints, value_string, value_strings)
