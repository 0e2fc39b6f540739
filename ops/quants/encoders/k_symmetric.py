"""Encoders of Q3_K and Q6_K: 16 groups of 16 elements, each with a quantized scale. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import clamp, from_f16, nearest, signed_byte, to_f16, truncated
from ....runtime.simd.vector import LANES, any_lane, load, select, splat, sqrt, stack_array, store, to_int
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half, put_pairs, put_planes
from .simd.scale_search import TINY, extreme, refined_scale, square_sum, symmetric_scale

LENGTH = 256
GROUPS = 16


@inner
def _search(x: Any, weights: Any, top: int, scales: Any, codes: Any) -> None:
    """Scales of all groups, and codes in ``[0, 2 top)``."""
    for group in range(GROUPS):
        at = 16 * group
        scale, inverse, empty = symmetric_scale(x, weights, at, at, 16, top)
        store(scales, group * LANES, scale)
        for i in range(at, at + 16):
            code = clamp(nearest(inverse * load(x, i * LANES)), np.float32(-top), np.float32(top - 1)) + np.float32(top)
            store(codes, i * LANES, to_int(select(empty, 0.0, code)))


@inner
def _requantize(x: Any, group: int, top: int, scale: Any, codes: Any) -> None:
    """Codes of a group for its quantized scale; where that is zero, the codes of the search."""
    for i in range(16 * group, 16 * group + 16):
        code = clamp(nearest(load(x, i * LANES) / scale), np.float32(-top), np.float32(top - 1)) + np.float32(top)
        store(codes, i * LANES, select(scale == 0, load(codes, i * LANES), to_int(code)))


@inner
def _q6_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, codes = stack_array(np.float32, GROUPS), stack_array(np.uint8, LENGTH)
    if importance.size:
        _search(x, importance, 32, scales, codes)
    else:
        squares = stack_array(np.float32, LENGTH)
        for i in range(LENGTH):
            element = load(x, i * LANES)
            store(squares, i * LANES, element * element)
        _search(x, squares, 32, scales, codes)
    scale, magnitude = extreme(scales, 0, GROUPS)
    empty = magnitude < TINY
    inverse = np.float32(-128) / scale
    d = select(empty, 0, to_f16(1.0 / inverse))
    for group in range(GROUPS):
        code = nearest(inverse * load(scales, group * LANES))
        quantized = select(empty, 0, truncated(select(code < 127, code, 127.0)))
        store(y, (192 + group) * LANES, quantized)
        _requantize(x, group, 32, from_f16(d) * signed_byte(quantized), codes)
    if any_lane(empty):
        for i in range(LENGTH):
            store(codes, i * LANES, select(empty, 0, load(codes, i * LANES)))
    _put_six_bits(y, codes)
    put_half(y, 208, d)


@inner
def _put_six_bits(y: Any, codes: Any) -> None:
    """Low 4 bits in 128 bytes, codes 64 apart sharing one; high 2 bits in 64 bytes, codes 32 apart."""
    for half in range(2):
        for i in range(32):
            at = (128 * half + i) * LANES
            first, second = load(codes, at), load(codes, at + 32 * LANES)
            third, fourth = load(codes, at + 64 * LANES), load(codes, at + 96 * LANES)
            store(y, (64 * half + i) * LANES, (first & 15) | ((third & 15) << 4))
            store(y, (64 * half + 32 + i) * LANES, (second & 15) | ((fourth & 15) << 4))
            high = (first >> 4) | ((second >> 4) << 2) | ((third >> 4) << 4) | ((fourth >> 4) << 6)
            store(y, (128 + 32 * half + i) * LANES, high)


@inner
def _q3_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, quantized, codes = (
        stack_array(np.float32, GROUPS),
        stack_array(np.int32, GROUPS),
        stack_array(np.uint8, LENGTH),
    )
    d = (
        _weighted_scales(x, importance, scales, codes, quantized)
        if importance.size
        else _plain_scales(x, scales, codes, quantized)
    )
    for group in range(GROUPS):
        scale = from_f16(d) * (signed_byte(load(quantized, group * LANES)) - np.float32(32))
        _requantize(x, group, 4, scale, codes)
    put_planes(y, 0, codes, 2)
    put_pairs(y, 32, codes)
    _put_scales(y, quantized)
    put_half(y, 108, d)


@inner
def _plain_scales(x: Any, scales: Any, codes: Any, quantized: Any) -> Any:
    for group in range(GROUPS):
        store(scales, group * LANES, refined_scale(x, 16 * group, 16, 4, codes))
    scale, _ = extreme(scales, 0, GROUPS)
    present = ~(scale == 0)
    inverse = np.float32(-32) / scale
    for group in range(GROUPS):
        code = signed_byte(truncated(nearest(inverse * load(scales, group * LANES))))
        store(
            quantized,
            group * LANES,
            select(present, truncated(clamp(code, np.float32(-32), np.float32(31)) + np.float32(32)), 0),
        )
    return select(present, to_f16(1.0 / inverse), 0)


@inner
def _weighted_scales(x: Any, importance: Any, scales: Any, codes: Any, quantized: Any) -> Any:
    weights, sums = stack_array(np.float32, LENGTH), stack_array(np.float32, GROUPS)
    mean = np.float32(2) * square_sum(x, 0, LENGTH) / np.float32(LENGTH)
    for group in range(GROUPS):
        total = splat(np.float32(0))
        for i in range(16 * group, 16 * group + 16):
            element = load(x, i * LANES)
            weight = load(importance, i * LANES) * sqrt(mean + element * element)
            store(weights, i * LANES, weight)
            total += weight
        store(sums, group * LANES, total)
    _search(x, weights, 4, scales, codes)
    scale, inverse, empty = symmetric_scale(scales, sums, 0, 0, GROUPS, 32)
    for group in range(GROUPS):
        code = clamp(nearest(inverse * load(scales, group * LANES)), np.float32(-32), np.float32(31)) + np.float32(32)
        store(quantized, group * LANES, truncated(select(empty, 0.0, code)))
    return to_f16(scale)


@inner
def _put_scales(y: Any, quantized: Any) -> None:
    """16 scales of 6 bits: low 4 bits in 8 bytes from byte 96, high 2 bits in the next 4."""
    for i in range(8):
        low, high = load(quantized, i * LANES), load(quantized, (i + 8) * LANES)
        store(y, (96 + i) * LANES, (low & 15) | ((high & 15) << 4))
    for i in range(4):
        packed = load(quantized, i * LANES) >> 4
        for plane in range(1, 4):
            packed = packed | ((load(quantized, (i + 4 * plane) * LANES) >> 4) << 2 * plane)
        store(y, (104 + i) * LANES, packed)


encode_q3_k = lane_encoder(_q3_k, LENGTH, 110)
encode_q6_k = lane_encoder(_q6_k, LENGTH, 210)
