"""NonZero and Compress: indices or slices where a condition holds."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..rules.axes import axis_in, input_error, unknown_along_axis


def infer_non_zero(node: Inference) -> None:
    """One row for each axis."""
    shape = node.shape(0)
    node.set(0, I64, (None if shape is None else max(len(shape), 1), None))


@op(
    "NonZero",
    since=13,
    types="tensor",
    infer=infer_non_zero,
    examples=[
        case(np.array([[1, 0, 2], [0, 0, 3]], np.float32)),
        case("bool[2,3,4]"),
        case(np.array([0, -1], np.int64)),
        case("f32[0,3]"),
    ],
)
def non_zero(x: np.ndarray) -> np.ndarray:
    """Indices of the elements that are not zero, [rank, count] in row-major order; a scalar is taken as one row."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@op(
    "Compress",
    since=28,
    types="tensor bool",
    infer=unknown_along_axis,
    examples=[
        case("f32[3,4]", np.array([True, False, True]), axis=0),
        case("f32[3,4]", np.array([False, True]), axis=-1),
        case("f32[3,2]", np.array([False, True, True])),
        case("string[3]", np.array([True, False, True]), axis=0),
        case("f32[0,3]", np.zeros(0, bool), axis=0),
    ],
)
def compress(x: np.ndarray, condition: np.ndarray, *, axis: int | None = None) -> np.ndarray:
    """Entries along `axis`, or of the flattened input, where the condition holds; it may be shorter than the axis, not
    longer."""
    flat = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else axis_in("Compress", axis, x.ndim)
    if condition.ndim != 1 or condition.size > flat.shape[at]:
        raise input_error(
            "Compress", "the condition is longer than the axis", expected=flat.shape[at], found=condition.size
        )
    return np.take(flat, np.nonzero(condition)[0], at)
