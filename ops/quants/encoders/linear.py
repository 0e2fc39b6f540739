"""Encoders of Q4_0, Q4_1, Q5_0 and Q5_1: one scale for 32 elements. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.kernel import inlined
from ....runtime.simd import LANES, load, select, splat, sqrt, store, to_int
from .fields import put_half
from .lanes import lane_encoder
from .rounding import clamp, nearest, to_half
from .search import affine_scale, extreme, symmetric_scale

LENGTH = 32
LARGEST = np.float32(np.finfo(np.float32).max)


@inlined
def _weigh(x: Any, importance: Any, means: Any) -> Any:
    weights = np.empty(LENGTH * LANES, np.float32)
    mean = load(means, 0)
    for i in range(LENGTH):
        element = load(x, i * LANES)
        store(weights, i * LANES, load(importance, i * LANES) * sqrt(mean + element * element))
    return weights


@inlined
def _symmetric(x: Any, importance: Any, means: Any, top: int) -> Any:
    """``(scale, base, inverse, offset)`` for codes in ``[0, 2 top)``."""
    zero = splat(np.float32(0))
    if importance.size:
        scale, inverse, empty = symmetric_scale(x, _weigh(x, importance, means), 0, 0, LENGTH, top)
        return scale, zero, select(empty, 0.0, inverse), select(empty, 0.0, np.float32(top))
    value, _ = extreme(x, 0, LENGTH)
    scale = value / np.float32(-top)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    lost = abs(inverse) > LARGEST
    return scale, zero, select(lost, 0.0, inverse), select(lost, 0.0, np.float32(top) + np.float32(0.5))


@inlined
def _affine(x: Any, importance: Any, means: Any, top: int) -> Any:
    """``(scale, minimum, base, inverse, offset)`` for codes in ``[0, top]``."""
    if importance.size:
        room = np.empty(LENGTH * LANES, np.float32)
        weights = _weigh(x, importance, means)
        scale, minimum, inverse, base = affine_scale(x, weights, 0, LENGTH, top, np.float32(-0.9), np.float32(0.05), 36, False, room)
        return scale, -minimum, base, inverse, splat(np.float32(0))
    minimum, maximum = splat(LARGEST), splat(-LARGEST)
    for i in range(LENGTH):
        element = load(x, i * LANES)
        minimum = select(element < minimum, element, minimum)
        maximum = select(element > maximum, element, maximum)
    scale = (maximum - minimum) / np.float32(top)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    lost = (scale > LARGEST) | (inverse > LARGEST)
    return scale, minimum, select(lost, 0.0, minimum), select(lost, 0.0, inverse), select(lost, 0.0, splat(np.float32(0.5)))


@inlined
def _code(x: Any, i: int, weighted: bool, base: Any, inverse: Any, offset: Any, low: int, high: int) -> Any:
    """The code of element `i`, rounded and bounded as libggml does with importance and without.

    Where a scale's inverse overflows, libggml's codes are zero; so are these, from an inverse and an offset of zero.
    """
    element = load(x, i * LANES) - base
    if weighted:
        return to_int(clamp(nearest(inverse * element), np.float32(low), np.float32(high)) + offset)
    code = to_int(element * inverse + offset)
    return select(code < high - low, code, high - low)


@inlined
def _put_nibbles(y: Any, at: int, x: Any, weighted: bool, base: Any, inverse: Any, offset: Any, low: int, high: int) -> None:
    for i in range(16):
        first = _code(x, i, weighted, base, inverse, offset, low, high)
        second = _code(x, i + 16, weighted, base, inverse, offset, low, high)
        store(y, (at + i) * LANES, first | (second << 4))


@inlined
def _put_five_bits(y: Any, at: int, x: Any, weighted: bool, base: Any, inverse: Any, offset: Any, low: int, high: int) -> None:
    """Fifth bits in four bytes, then the lower ones in 16 bytes."""
    fifth = splat(np.int32(0))
    for i in range(16):
        first = _code(x, i, weighted, base, inverse, offset, low, high)
        second = _code(x, i + 16, weighted, base, inverse, offset, low, high)
        fifth = fifth | ((first >> 4) << i) | ((second >> 4) << (i + 16))
        store(y, (at + 4 + i) * LANES, (first & 15) | (second << 4))
    put_half(y, at, fifth)
    put_half(y, at + 2, fifth >> 16)


@inlined
def _q4_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scale, base, inverse, offset = _symmetric(x, importance, means, 8)
    put_half(y, 0, to_half(scale))
    if importance.size:
        _put_nibbles(y, 2, x, True, base, inverse, offset, -8, 7)
    else:
        _put_nibbles(y, 2, x, False, base, inverse, offset, -8, 7)


@inlined
def _q5_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scale, base, inverse, offset = _symmetric(x, importance, means, 16)
    put_half(y, 0, to_half(scale))
    if importance.size:
        _put_five_bits(y, 2, x, True, base, inverse, offset, -16, 15)
    else:
        _put_five_bits(y, 2, x, False, base, inverse, offset, -16, 15)


@inlined
def _q4_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scale, minimum, base, inverse, offset = _affine(x, importance, means, 15)
    put_half(y, 0, to_half(scale))
    put_half(y, 2, to_half(minimum))
    if importance.size:
        _put_nibbles(y, 4, x, True, base, inverse, offset, 0, 15)
    else:
        _put_nibbles(y, 4, x, False, base, inverse, offset, 0, 15)


@inlined
def _q5_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scale, minimum, base, inverse, offset = _affine(x, importance, means, 31)
    put_half(y, 0, to_half(scale))
    put_half(y, 2, to_half(minimum))
    if importance.size:
        _put_five_bits(y, 4, x, True, base, inverse, offset, 0, 31)
    else:
        _put_five_bits(y, 4, x, False, base, inverse, offset, 0, 31)


encode_q4_0 = lane_encoder(_q4_0, LENGTH, 18, row_means=True)
encode_q4_1 = lane_encoder(_q4_1, LENGTH, 20, row_means=True)
encode_q5_0 = lane_encoder(_q5_0, LENGTH, 22, row_means=True)
encode_q5_1 = lane_encoder(_q5_1, LENGTH, 24, row_means=True)
