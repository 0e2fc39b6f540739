"""Encoders of TQ1_0 and TQ2_0: the largest magnitude is the scale. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import rounded, to_f16
from ....runtime.simd.vector import LANES, load, select, splat, stack_array, store, to_float, to_int
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half, put_pairs
from .simd.scale_search import extreme

LENGTH = 256
LOWEST = -2147483648


@inner
def _digits(x: Any, y: Any, at: int, digits: Any) -> None:
    """Write the scale at byte `at`, and compute the elements as codes 0, 1, 2."""
    _, magnitude = extreme(x, 0, LENGTH)
    inverse = select(magnitude == 0, 0.0, 1.0 / magnitude)
    put_half(y, at, to_f16(magnitude))
    for i in range(LENGTH):
        digit = rounded(load(x, i * LANES) * inverse)
        store(digits, i * LANES, select(digit == LOWEST, 1, digit + 1))


@inner
def _tq1_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    digits = stack_array(np.int32, LENGTH)
    _digits(x, y, 52, digits)
    for i in range(32):
        _put_fraction(y, i, digits, i, 32, 5)
    for i in range(16):
        _put_fraction(y, 32 + i, digits, 160 + i, 16, 5)
    for i in range(4):
        _put_fraction(y, 48 + i, digits, 240 + i, 4, 4)


@inner
def _put_fraction(y: Any, at: int, digits: Any, first: int, stride: int, count: int) -> None:
    """Five base-3 digits as a fraction of 256, rounded up; a missing fifth digit is zero."""
    packed = splat(np.int32(0))
    for i in range(count):
        packed = packed * 3 + load(digits, (first + i * stride) * LANES)
    if count == 4:
        packed = packed * 3
    scaled = to_float((packed & 255) * 256 + 242) + np.float32(0.5)
    store(y, at * LANES, to_int(scaled / np.float32(243)))


@inner
def _tq2_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    digits = stack_array(np.int32, LENGTH)
    _digits(x, y, 64, digits)
    put_pairs(y, 0, digits)


encode_tq1_0 = lane_encoder(_tq1_0, LENGTH, 54, weighted=False)
encode_tq2_0 = lane_encoder(_tq2_0, LENGTH, 66, weighted=False)
