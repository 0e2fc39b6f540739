"""Bernoulli: ones with the probability given by the input, else zeros."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ..cast.cast import element_type
from .bit_generator import like_input, stream

CHANCES = np.array([[0, 0.2, 0.5], [0.7, 0.9, 1]], np.float32)


@op(
    "Bernoulli",
    since=22,
    types="float",
    infer=like_input,
    random=True,
    examples=[case(CHANCES, seed=3.0), case(CHANCES, dtype=9, seed=1.0), case("f32[0,2]", seed=0.0)],
)
def bernoulli(x: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> np.ndarray:
    """Shape of `x`, elements 0 or 1 in its dtype or in `dtype`."""
    wanted = x.dtype if dtype is None else element_type(dtype).as_numpy()
    return np.asarray(stream(seed).binomial(1, x.astype(np.float64).clip(0, 1))).astype(wanted)
