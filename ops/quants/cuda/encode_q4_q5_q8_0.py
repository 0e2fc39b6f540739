"""Encoders of Q8_0, and of Q4_0 to Q5_1 without importance, one block in a lane, with the bytes of
`encoders/q4_q5_q8_0.py`. Source: ggml-quants.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.simd.ggml_rounding import to_f16
from ....runtime.simd.vector import LANES, bits, from_bits, load, select, splat, stack_array, store, to_int
from ..encoders.simd.packed_fields import put_bits, put_half, put_nibbles
from ..encoders.simd.scale_search import extreme

LENGTH = 32
LARGEST = np.float32(np.finfo(np.float32).max)


def _inverse(scale: Any) -> Any:
    return select(scale == 0, 0.0, 1.0 / scale)


def _codes(x: Any, base: Any, inverse: Any, offset: Any, highest: int, codes: Any) -> None:
    for i in range(LENGTH):
        code = to_int((load(x, i * LANES) - base) * inverse + offset)
        store(codes, i * LANES, select(code < highest, code, highest))


def _symmetric(x: Any, y: Any, top: int, codes: Any) -> None:
    """Write the scale; codes in ``[0, 2 top)``. Where the inverse of a scale overflows, libggml's codes are zero."""
    value, _ = extreme(x, 0, LENGTH)
    value = select(value == 0, 0.0, value)
    scale = value / np.float32(-top)
    inverse = _inverse(scale)
    lost = abs(inverse) > LARGEST
    offset = select(lost, 0.0, np.float32(top) + np.float32(0.5))
    put_half(y, 0, to_f16(scale))
    _codes(x, splat(np.float32(0)), select(lost, 0.0, inverse), offset, 2 * top - 1, codes)


def _affine(x: Any, y: Any, top: int, codes: Any) -> None:
    """Write the scale and the least element; codes in ``[0, top]``."""
    low, high = load(x, 0), load(x, 0)
    for i in range(1, LENGTH):
        element = load(x, i * LANES)
        low, high = select(element < low, element, low), select(element > high, element, high)
    scale = (high - low) / np.float32(top)
    inverse = _inverse(scale)
    lost = (scale > LARGEST) | (inverse > LARGEST)
    put_half(y, 0, to_f16(scale))
    put_half(y, 2, to_f16(low))
    _codes(x, select(lost, 0.0, low), select(lost, 0.0, inverse), select(lost, 0.0, splat(np.float32(0.5))), top, codes)


def _q4_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _symmetric(x, y, 8, codes)
    put_nibbles(y, 2, codes, 0, 16)


def _q4_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _affine(x, y, 15, codes)
    put_nibbles(y, 4, codes, 0, 16)


def _q5_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _symmetric(x, y, 16, codes)
    put_bits(y, 2, codes, 0, LENGTH, 4)
    put_nibbles(y, 6, codes, 0, 16)


def _q5_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _affine(x, y, 31, codes)
    put_bits(y, 4, codes, 0, LENGTH, 4)
    put_nibbles(y, 8, codes, 0, 16)


def _q8_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    _, magnitude = extreme(x, 0, LENGTH)
    scale = magnitude / np.float32(127)
    inverse = _inverse(scale)
    inverse = select(inverse > LARGEST, 0.0, inverse)
    put_half(y, 0, to_f16(scale))
    for i in range(LENGTH):
        value = load(x, i * LANES) * inverse
        store(y, (2 + i) * LANES, to_int(value + from_bits((bits(value) & -2147483648) | 0x3EFFFFFF)))


PLAIN: dict[str, Callable[..., None]] = {"q4_0": _q4_0, "q4_1": _q4_1, "q5_0": _q5_0, "q5_1": _q5_1, "q8_0": _q8_0}
