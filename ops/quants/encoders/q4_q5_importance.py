"""Encoders of Q4_0, Q4_1, Q5_0 and Q5_1 with importance: search for the scale of 32 elements. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inlined
from ....runtime.simd.ggml_rounding import clamp, nearest, to_f16
from ....runtime.simd.vector import LANES, load, select, sqrt, stack_array, store, to_int
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_bits, put_half, put_nibbles
from .simd.scale_search import affine_scale, symmetric_scale

LENGTH = 32


@inlined
def _weigh(x: Any, importance: Any, means: Any, weights: Any) -> None:
    mean = load(means, 0)
    for i in range(LENGTH):
        element = load(x, i * LANES)
        store(weights, i * LANES, load(importance, i * LANES) * sqrt(mean + element * element))


@inlined
def _symmetric(x: Any, importance: Any, means: Any, y: Any, top: int, codes: Any) -> None:
    """Write the scale at byte 0; codes in ``[0, 2 top)``."""
    weights = stack_array(np.float32, 32)
    _weigh(x, importance, means, weights)
    scale, inverse, empty = symmetric_scale(x, weights, 0, 0, LENGTH, top)
    put_half(y, 0, to_f16(scale))
    for i in range(LENGTH):
        code = clamp(nearest(inverse * load(x, i * LANES)), np.float32(-top), np.float32(top - 1)) + np.float32(top)
        store(codes, i * LANES, to_int(select(empty, 0.0, code)))


@inlined
def _affine(x: Any, importance: Any, means: Any, y: Any, top: int, codes: Any) -> None:
    """Write the scale at byte 0 and the minimum at byte 2; codes in ``[0, top]``."""
    weights, tried = stack_array(np.float32, 32), stack_array(np.float32, 32)
    _weigh(x, importance, means, weights)
    scale, minimum, inverse, base = affine_scale(
        x, weights, 0, LENGTH, top, np.float32(-0.9), np.float32(0.05), 36, False, tried
    )
    put_half(y, 0, to_f16(scale))
    put_half(y, 2, to_f16(-minimum))
    for i in range(LENGTH):
        store(
            codes,
            i * LANES,
            to_int(clamp(nearest(inverse * (load(x, i * LANES) - base)), np.float32(0), np.float32(top))),
        )


@inlined
def _q4_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _symmetric(x, importance, means, y, 8, codes)
    put_nibbles(y, 2, codes, 0, 16)


@inlined
def _q5_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _symmetric(x, importance, means, y, 16, codes)
    put_bits(y, 2, codes, 0, LENGTH, 4)
    put_nibbles(y, 6, codes, 0, 16)


@inlined
def _q4_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _affine(x, importance, means, y, 15, codes)
    put_nibbles(y, 4, codes, 0, 16)


@inlined
def _q5_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _affine(x, importance, means, y, 31, codes)
    put_bits(y, 4, codes, 0, LENGTH, 4)
    put_nibbles(y, 8, codes, 0, 16)


encode_q4_0 = lane_encoder(_q4_0, LENGTH, 18, row_means=True)
encode_q4_1 = lane_encoder(_q4_1, LENGTH, 20, row_means=True)
encode_q5_0 = lane_encoder(_q5_0, LENGTH, 22, row_means=True)
encode_q5_1 = lane_encoder(_q5_1, LENGTH, 24, row_means=True)
