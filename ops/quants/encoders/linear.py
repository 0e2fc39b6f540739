"""Encoders of Q4_0, Q4_1, Q5_0 and Q5_1: one scale for 32 elements. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.kernel import inner
from ....runtime.simd import LANES, load, select, splat, sqrt, store
from .fields import put_bits, put_half, put_nibbles
from .lanes import lane_encoder
from .rounding import clamp, nearest, to_half, truncated
from .search import affine_scale, extreme, symmetric_scale

LENGTH = 32
LARGEST = np.float32(np.finfo(np.float32).max)


@inner
def _weigh(x: Any, importance: Any, means: Any) -> Any:
    weights = np.empty(LENGTH * LANES, np.float32)
    mean = load(means, 0)
    for i in range(LENGTH):
        element = load(x, i * LANES)
        store(weights, i * LANES, load(importance, i * LANES) * sqrt(mean + element * element))
    return weights


@inner
def _symmetric(x: Any, importance: Any, means: Any, y: Any, top: int) -> Any:
    """Write the scale at byte 0, and give the codes in ``[0, 2 top)``."""
    codes = np.empty(LENGTH * LANES, np.int32)
    if importance.size:
        scale, inverse, empty = symmetric_scale(x, _weigh(x, importance, means), 0, 0, LENGTH, top)
        for i in range(LENGTH):
            code = clamp(nearest(inverse * load(x, i * LANES)), np.float32(-top), np.float32(top - 1)) + np.float32(top)
            store(codes, i * LANES, truncated(select(empty, 0.0, code)))
    else:
        value, _ = extreme(x, 0, LENGTH)
        scale = value / np.float32(-top)
        inverse = select(scale == 0, 0.0, 1.0 / scale)
        for i in range(LENGTH):
            code = truncated(load(x, i * LANES) * inverse + (np.float32(top) + np.float32(0.5))) & 255
            store(codes, i * LANES, select(code < 2 * top - 1, code, 2 * top - 1))
    put_half(y, 0, to_half(scale))
    return codes


@inner
def _affine(x: Any, importance: Any, means: Any, y: Any, top: int) -> Any:
    """Write the scale at byte 0 and the minimum at byte 2, and give the codes in ``[0, top]``."""
    codes = np.empty(LENGTH * LANES, np.int32)
    if importance.size:
        room = np.empty(LENGTH * LANES, np.float32)
        weights = _weigh(x, importance, means)
        scale, minimum, inverse, base = affine_scale(x, weights, 0, LENGTH, top, np.float32(-0.9), np.float32(0.05), 36, False, room)
        minimum = -minimum
        for i in range(LENGTH):
            code = clamp(nearest(inverse * (load(x, i * LANES) - base)), np.float32(0), np.float32(top))
            store(codes, i * LANES, truncated(code))
    else:
        minimum, maximum = splat(LARGEST), splat(-LARGEST)
        for i in range(LENGTH):
            element = load(x, i * LANES)
            minimum = select(element < minimum, element, minimum)
            maximum = select(element > maximum, element, maximum)
        scale = (maximum - minimum) / np.float32(top)
        inverse = select(scale == 0, 0.0, 1.0 / scale)
        for i in range(LENGTH):
            code = truncated((load(x, i * LANES) - minimum) * inverse + np.float32(0.5)) & 255
            store(codes, i * LANES, select(code < top, code, top) if top == 15 else code)
    put_half(y, 0, to_half(scale))
    put_half(y, 2, to_half(minimum))
    return codes


@inner
def _q4_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    put_nibbles(y, 2, _symmetric(x, importance, means, y, 8), 0, 16)


@inner
def _q5_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = _symmetric(x, importance, means, y, 16)
    put_bits(y, 2, codes, 0, LENGTH, 4)
    put_nibbles(y, 6, codes, 0, 16)


@inner
def _q4_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    put_nibbles(y, 4, _affine(x, importance, means, y, 15), 0, 16)


@inner
def _q5_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = _affine(x, importance, means, y, 31)
    put_bits(y, 4, codes, 0, LENGTH, 4)
    put_nibbles(y, 8, codes, 0, 16)


encode_q4_0 = lane_encoder(_q4_0, LENGTH, 18, row_means=True)
encode_q4_1 = lane_encoder(_q4_1, LENGTH, 20, row_means=True)
encode_q5_0 = lane_encoder(_q5_0, LENGTH, 22, row_means=True)
encode_q5_1 = lane_encoder(_q5_1, LENGTH, 24, row_means=True)
