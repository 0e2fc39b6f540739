"""RandomNormal and RandomNormalLike: normally distributed samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.op import case, op
from ..cast.cast import element_type
from .bit_generator import filled, like_input, of_shape, stream


def _drawn(shape: Sequence[int], dtype: np.dtype, mean: float, scale: float, seed: float | None) -> np.ndarray:
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    drawn: np.ndarray = np.asarray(stream(seed).standard_normal(filled(shape, "RandomNormal"))).astype(wide)
    return (drawn * wide(scale) + wide(mean)).astype(dtype)


@op(
    "RandomNormal",
    since=22,
    types="",
    infer=of_shape,
    random=True,
    examples=[case(shape=[2, 3], seed=3.0), case(shape=[5], dtype=11, mean=2.0, scale=0.5, seed=1.0)],
)
def random_normal(
    *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    """Numbers of `mean` and standard deviation `scale`, in the element type `dtype`."""
    return _drawn(shape, element_type(dtype).as_numpy(), mean, scale, seed)


@op(
    "RandomNormalLike",
    since=22,
    types="tensor",
    infer=like_input,
    random=True,
    examples=[
        case("f32[2,3]", seed=3.0),
        case("f32[5]", dtype=11, mean=2.0, scale=0.5, seed=1.0),
        case("f32[0,2]", seed=0.0),
    ],
)
def random_normal_like(
    x: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> np.ndarray:
    """The same in the shape of `x`."""
    return _drawn(x.shape, x.dtype if dtype is None else element_type(dtype).as_numpy(), mean, scale, seed)
