"""Det: determinants of square matrices."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.precision import widened


def without_matrices(node: Inference) -> None:
    """The stack's own dims."""
    shape = node.shape(0)
    if shape is not None and (
        len(shape) < 2 or (isinstance(shape[-1], int) and isinstance(shape[-2], int) and shape[-1] != shape[-2])
    ):
        node.fail(f"its input must be square matrices, it has shape {shape}")
    node.set(0, node.dtype(0), None if shape is None else shape[:-2])


@op(
    "Det",
    since=22,
    types="float",
    traits=(Trait.KEEPS_F32,),
    infer=without_matrices,
    examples=[case("f32[3,3]"), case("f32[2,1,4,4]"), case("f64[2,2]"), case("f32[0,3,3]")],
)
@quiet
@widened
def det(x: np.ndarray) -> np.ndarray:
    """Determinant of each matrix (the last two dims), by LU factors in f64."""
    return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)
