"""RandomUniform and RandomUniformLike: uniformly distributed samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.op import case, op
from ..cast.cast import element_type
from .bit_generator import filled, like_input, of_shape, stream


def _drawn(shape: Sequence[int], dtype: np.dtype, low: float, high: float, seed: float | None) -> np.ndarray:
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    drawn: np.ndarray = np.asarray(stream(seed).random_sample(filled(shape, "RandomUniform"))).astype(wide)
    return (drawn * wide(high - low) + wide(low)).astype(dtype)


@op(
    "RandomUniform",
    since=22,
    types="",
    infer=of_shape,
    random=True,
    examples=[case(shape=[2, 3], seed=3.0), case(shape=[5], dtype=11, low=2.0, high=2.5, seed=1.0)],
)
def random_uniform(
    *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> np.ndarray:
    """Numbers in [low, high), in the element type `dtype`."""
    return _drawn(shape, element_type(dtype).as_numpy(), low, high, seed)


@op(
    "RandomUniformLike",
    since=22,
    types="tensor",
    infer=like_input,
    random=True,
    examples=[
        case("f32[2,3]", seed=3.0),
        case("f32[5]", dtype=11, low=2.0, high=2.5, seed=1.0),
        case("f32[0,2]", seed=0.0),
    ],
)
def random_uniform_like(
    x: np.ndarray, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> np.ndarray:
    """The same in the shape of `x`."""
    return _drawn(x.shape, x.dtype if dtype is None else element_type(dtype).as_numpy(), low, high, seed)
