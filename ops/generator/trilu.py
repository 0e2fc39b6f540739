"""Trilu: the upper or lower triangle of matrices."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ..rules.axes import input_error, matrices, zero


@op(
    "Trilu",
    since=14,
    types="tensor i64",
    traits=(Trait.MOVES,),
    infer=matrices,
    examples=[
        case("f32[3,4]"),
        case("f32[2,4,3]", np.array(-1), upper=0),
        case("i64[3,3]", np.array(1)),
        case("f32[3,3]", np.array(9)),
        case("bool[3,3]", upper=0),
        case("f32[0,3]", np.array(-5)),
    ],
)
def trilu(x: np.ndarray, k: np.ndarray | None = None, *, upper: int = 1) -> np.ndarray:
    """Elements on and above (or below) diagonal `k` of [..., N, M], which counts upwards; zeros elsewhere."""
    if x.ndim < 2:
        raise input_error("Trilu", "the input is not a matrix", expected=2, found=x.ndim)
    rows, columns = x.shape[-2:]
    diagonal = 0 if k is None else min(max(int(k.reshape(-1)[0]), -rows - 1), columns + 1)
    below = np.tri(rows, columns, diagonal - 1 if upper else diagonal, dtype=bool)
    return np.where(~below if upper else below, x, zero(x.dtype)).astype(x.dtype, copy=False)
