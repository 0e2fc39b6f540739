"""Encoders of Q2_K, Q4_K and Q5_K: groups with a scale and a minimum, both quantized. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inlined, inner
from ....runtime.simd.ggml_rounding import byte, clamp, from_f16, nearest, to_f16, truncated
from ....runtime.simd.vector import LANES, load, select, splat, sqrt, stack_array, store
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half, put_nibbles, put_pairs, put_planes
from .simd.scale_search import affine_scale, positive_scale, square_sum

LENGTH = 256


@inlined
def _room(groups: int) -> Any:
    """Search results of `groups` groups: scales, minima, inverses, bases, sums of weights."""
    return (
        stack_array(np.float32, groups),
        stack_array(np.float32, groups),
        stack_array(np.float32, groups),
        stack_array(np.float32, groups),
        stack_array(np.float32, groups),
    )


@inner
def _mean_weights(x: Any, importance: Any, at: int, count: int, mean: Any, weights: Any) -> Any:
    """Weights of a group by importance, and their sum."""
    total = splat(np.float32(0))
    for i in range(count):
        element = load(x, (at + i) * LANES)
        weight = load(importance, (at + i) * LANES) * sqrt(mean + element * element)
        store(weights, i * LANES, weight)
        total += weight
    return total


@inner
def _magnitude_weights(x: Any, at: int, count: int, offset: Any, weights: Any) -> None:
    for i in range(count):
        store(weights, i * LANES, offset + abs(load(x, (at + i) * LANES)))


@inner
def _search(x: Any, importance: Any, count: int, top: int, plain: Any, double: int, found: Any) -> None:
    """Fill ``(scales, minima, inverses, bases, sums)`` of all groups of `count` elements, 16 or 32.

    `plain` is (lowest spread, step, steps, absolute error) without importance; `double` multiplies the mean square with
    it.
    """
    groups = LENGTH // count
    scales, minima, inverses, bases, sums = found
    weights, codes = stack_array(np.float32, 32), stack_array(np.float32, 32)
    mean = (
        np.float32(double) * square_sum(x, 0, LENGTH) / np.float32(LENGTH) if importance.size else splat(np.float32(0))
    )
    for group in range(groups):
        at = group * count
        if importance.size:
            store(sums, group * LANES, _mean_weights(x, importance, at, count, mean, weights))
            best = affine_scale(x, weights, at, count, top, np.float32(-0.9), np.float32(0.05), 36, False, codes)
        else:
            absolute = plain[3]
            offset = splat(np.float32(0)) if absolute else sqrt(square_sum(x, at, count) / np.float32(count))
            _magnitude_weights(x, at, count, offset, weights)
            best = affine_scale(x, weights, at, count, top, plain[0], plain[1], plain[2], absolute, codes)
        store(scales, group * LANES, best[0])
        store(minima, group * LANES, best[1])
        store(inverses, group * LANES, best[2])
        store(bases, group * LANES, best[3])


@inner
def _largest(values: Any, count: int) -> Any:
    largest = splat(np.float32(0))
    for i in range(count):
        value = load(values, i * LANES)
        largest = select(value > largest, value, largest)
    return largest


@inner
def _group_codes(
    x: Any, at: int, count: int, top: int, scale: Any, minimum: Any, inverse: Any, base: Any, codes: Any
) -> None:
    """Codes of a group for its quantized scale; where that is zero, the codes of the search."""
    for i in range(at, at + count):
        element = load(x, i * LANES)
        code = select(scale == 0, nearest(inverse * (element - base)), nearest((element + minimum) / scale))
        store(codes, i * LANES, truncated(clamp(code, np.float32(0), np.float32(top))))


@inner
def _q2_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, minima, inverses, bases, sums = found = _room(16)
    _search(x, importance, 16, 3, (np.float32(-0.5), np.float32(0.1), 15, True), 1, found)
    low, high = stack_array(np.float32, 16), stack_array(np.float32, 16)
    if importance.size:
        d = to_f16(positive_scale(scales, sums, 16, 15, low))
        dmin = to_f16(positive_scale(minima, sums, 16, 15, high))
    else:
        d = to_f16(_simple_scale(scales, 16, 15, low))
        dmin = to_f16(_simple_scale(minima, 16, 15, high))
    codes = stack_array(np.uint8, LENGTH)
    for group in range(16):
        at = group * LANES
        packed = (truncated(load(low, at)) | (truncated(load(high, at)) << 4)) & 255
        store(y, at, packed)
        scale, minimum = from_f16(d) * byte(packed & 15), from_f16(dmin) * byte(packed >> 4)
        _group_codes(x, 16 * group, 16, 3, scale, minimum, load(inverses, at), load(bases, at), codes)
    put_pairs(y, 16, codes)
    put_half(y, 80, d)
    put_half(y, 82, dmin)


@inner
def _simple_scale(values: Any, count: int, top: int, codes: Any) -> Any:
    """The largest value takes the code `top`."""
    largest = _largest(values, count)
    positive = largest > 0
    inverse = select(positive, np.float32(top) / largest, 0.0)
    for i in range(count):
        code = nearest(inverse * load(values, i * LANES))
        store(codes, i * LANES, select(positive, byte(truncated(code)), 0.0))
    return select(positive, largest / np.float32(top), 0.0)


@inner
def _capped(codes: Any, count: int) -> None:
    for i in range(count):
        code = load(codes, i * LANES)
        store(codes, i * LANES, select(code < 63, code, 63.0))


@inner
def _put_scales(y: Any, low: Any, high: Any, scales: Any, minima: Any) -> None:
    """Pack eight 6-bit scales and minima into 12 bytes from byte 4, and return the stored values."""
    packed = stack_array(np.int32, 12)
    for i in range(4):
        scale, minimum = truncated(load(low, (i + 4) * LANES)), truncated(load(high, (i + 4) * LANES))
        store(packed, i * LANES, truncated(load(low, i * LANES)) | (((scale >> 4) << 6) & 255))
        store(packed, (i + 4) * LANES, truncated(load(high, i * LANES)) | (((minimum >> 4) << 6) & 255))
        store(packed, (i + 8) * LANES, (scale & 15) | ((minimum & 15) << 4))
    for i in range(12):
        store(y, (4 + i) * LANES, load(packed, i * LANES))
    for i in range(4):
        first, second, third = load(packed, i * LANES), load(packed, (i + 4) * LANES), load(packed, (i + 8) * LANES)
        store(scales, i * LANES, byte(first & 63))
        store(minima, i * LANES, byte(second & 63))
        store(scales, (i + 4) * LANES, byte((third & 15) | ((first >> 6) << 4)))
        store(minima, (i + 4) * LANES, byte((third >> 4) | ((second >> 6) << 4)))


@inner
def _q45_k(x: Any, importance: Any, y: Any, top: int, plain: Any, codes: Any) -> None:
    """Write scales, and compute the codes."""
    scales, minima, inverses, bases, sums = found = _room(8)
    _search(x, importance, 32, top, plain, 2, found)
    low, high = stack_array(np.float32, 8), stack_array(np.float32, 8)
    if importance.size:
        d = to_f16(positive_scale(scales, sums, 8, 63, low))
        dmin = to_f16(positive_scale(minima, sums, 8, 63, high))
    else:
        d = to_f16(_simple_scale(scales, 8, 63, low))
        dmin = to_f16(_simple_scale(minima, 8, 63, high))
    if not importance.size or top == 31:
        _capped(low, 8)
        _capped(high, 8)
    put_half(y, 0, d)
    put_half(y, 2, dmin)
    _put_scales(y, low, high, scales, minima)
    for group in range(8):
        at = group * LANES
        scale, minimum = from_f16(d) * load(scales, at), from_f16(dmin) * load(minima, at)
        _group_codes(x, 32 * group, 32, top, scale, minimum, load(inverses, at), load(bases, at), codes)


@inner
def _q4_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.uint8, LENGTH)
    _q45_k(x, importance, y, 15, (np.float32(-1), np.float32(0.1), 20, False), codes)
    for pair in range(4):
        put_nibbles(y, 16 + 32 * pair, codes, 64 * pair, 32)


@inner
def _q5_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.uint8, LENGTH)
    _q45_k(x, importance, y, 31, (np.float32(-0.5), np.float32(0.1), 15, False), codes)
    put_planes(y, 16, codes, 4)
    for pair in range(4):
        put_nibbles(y, 48 + 32 * pair, codes, 64 * pair, 32)


encode_q2_k = lane_encoder(_q2_k, LENGTH, 84)
encode_q4_k = lane_encoder(_q4_k, LENGTH, 144)
encode_q5_k = lane_encoder(_q5_k, LENGTH, 176)
