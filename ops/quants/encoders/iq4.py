"""Encoders of IQ4_NL and IQ4_XS: a scale for a table of non-uniform values. Source: ggml-quants.c."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import clamp, nearest, to_f16
from ....runtime.simd.vector import LANES, load, select, splat, sqrt, stack_array, store, to_int
from ..layout.value_tables import IQ4_NL
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half, put_nibbles
from .simd.scale_search import TINY, extreme, square_sum

COUNT = 32
TRIES = 7
LOWEST = np.float32(IQ4_NL[0])
MIDDLES = tuple(np.float32(low + high) / np.float32(2) for low, high in itertools.pairwise(IQ4_NL))


@inner
def _closest(value: Any) -> Any:
    """The table entry nearest to `value`, the upper one on ties; the last one for NaN."""
    found = splat(LOWEST)
    for i in range(len(MIDDLES)):
        found = select(value < MIDDLES[i], found, np.float32(IQ4_NL[i + 1]))
    return found


@inner
def _index(value: Any) -> Any:
    """The index of `_closest`."""
    found = splat(np.int32(0))
    for i in range(len(MIDDLES)):
        found = select(value < MIDDLES[i], found, i + 1)
    return found


@inner
def _sums(x: Any, weights: Any, at: int, inverse: Any) -> Any:
    """Weighted sums of value times element, and of value squared, for one scale."""
    sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
    for i in range(COUNT):
        element, weight = load(x, (at + i) * LANES), load(weights, i * LANES)
        value = _closest(inverse * element)
        sum_qx += weight * value * element
        sum_q2 += weight * value * value
    return sum_qx, sum_q2


@inner
def _scale(x: Any, weights: Any, at: int) -> Any:
    """The scale of one group, zero for a group of zeros."""
    value, magnitude = extreme(x, at, COUNT)
    sum_qx, sum_q2 = _sums(x, weights, at, 1.0 / (-value / LOWEST))
    scale = select(sum_q2 > 0, sum_qx / sum_q2, 0.0)
    best = scale * sum_qx
    for step in range(-TRIES, TRIES + 1):
        sum_qx, sum_q2 = _sums(x, weights, at, (np.float32(step) + LOWEST) / value)
        better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
        scale = select(better, sum_qx / sum_q2, scale)
        best = select(better, scale * sum_qx, best)
    return select(magnitude < TINY, 0.0, scale)


@inner
def _weigh(x: Any, importance: Any, at: int, mean: Any, weights: Any) -> None:
    for i in range(COUNT):
        element = load(x, (at + i) * LANES)
        weight = element * element
        if importance.size:
            weight = load(importance, (at + i) * LANES) * sqrt(mean + weight)
        store(weights, i * LANES, weight)


@inner
def _iq4_nl(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    weights, codes = stack_array(np.float32, COUNT), stack_array(np.int32, COUNT)
    _weigh(x, importance, 0, square_sum(x, 0, COUNT) * np.float32(2 / COUNT), weights)
    scale = _scale(x, weights, 0)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    for i in range(COUNT):
        store(codes, i * LANES, _index(inverse * load(x, i * LANES)))
    put_half(y, 0, to_f16(scale))
    put_nibbles(y, 2, codes, 0, 16)


@inner
def _iq4_xs(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    weights, codes = stack_array(np.float32, COUNT), stack_array(np.int32, 256)
    scales, quantized = stack_array(np.float32, 8), stack_array(np.int32, 8)
    mean = square_sum(x, 0, 256) * np.float32(2 / 256)
    for group in range(8):
        _weigh(x, importance, COUNT * group, mean, weights)
        store(scales, group * LANES, _scale(x, weights, COUNT * group))
    largest, _ = extreme(scales, 0, 8)
    d = -largest / np.float32(32)
    put_half(y, 0, to_f16(d))
    inverse = select(d == 0, 0.0, 1.0 / d)
    for group in range(8):
        code = clamp(nearest(inverse * load(scales, group * LANES)), np.float32(-32), np.float32(31))
        scale = d * code
        store(quantized, group * LANES, to_int(code + np.float32(32)))
        group_inverse = select(scale == 0, 0.0, 1.0 / scale)
        for i in range(COUNT * group, COUNT * (group + 1)):
            store(codes, i * LANES, _index(group_inverse * load(x, i * LANES)))
    _put_scales(y, quantized)
    for group in range(8):
        put_nibbles(y, 8 + 16 * group, codes, COUNT * group, 16)


@inner
def _put_scales(y: Any, quantized: Any) -> None:
    """Eight scales of 6 bits: high 2 bits in 2 bytes from byte 2, low 4 bits in the next 4."""
    high = splat(np.int32(0))
    for group in range(8):
        high = high | ((load(quantized, group * LANES) >> 4) << 2 * group)
    put_half(y, 2, high)
    for pair in range(4):
        first, second = load(quantized, 2 * pair * LANES), load(quantized, (2 * pair + 1) * LANES)
        store(y, (4 + pair) * LANES, (first & 15) | ((second & 15) << 4))


encode_iq4_nl = lane_encoder(_iq4_nl, COUNT, 18)
encode_iq4_xs = lane_encoder(_iq4_xs, 256, 136)
