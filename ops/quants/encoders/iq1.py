"""Encoders of IQ1_S and IQ1_M: the best split of a group into low, middle and high elements, then the lattice. Source:
ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import clamp, nearest, to_f16
from ....runtime.simd.vector import LANES, gather, load, no_lane, select, splat, stack_array, store, to_int
from .iq1_split import DOWN, LOWEST, UP, point_sums, prefix_sums, rank, snap, split_codes, weigh
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half
from .simd.scale_search import square_sum

TINY_S, TINY_M = 1e-12, 1e-7
HALF_UP = tuple(UP[i] * UP[i] - UP[i + 1] * UP[i + 1] for i in range(2))
HALF_DOWN = tuple(DOWN[i] * DOWN[i] - DOWN[i + 1] * DOWN[i + 1] for i in range(2))


@inner
def _error_terms(sum_x: Any, sum_w: Any, low: int, high: int, count: int, levels: Any) -> Any:
    x_low, x_high, x_all = load(sum_x, low * LANES), load(sum_x, high * LANES), load(sum_x, count * LANES)
    w_low, w_high, w_all = load(sum_w, low * LANES), load(sum_w, high * LANES), load(sum_w, count * LANES)
    sum_qx = (x_low - load(sum_x, 0)) * levels[0] + (x_high - x_low) * levels[1] + (x_all - x_high) * levels[2]
    sum_q2 = (w_low - load(sum_w, 0)) * levels[0] * levels[0] + (w_high - w_low) * levels[1] * levels[1]
    return sum_qx, sum_q2 + (w_all - w_high) * levels[2] * levels[2]


@inner
def _best_split(sum_x: Any, sum_w: Any, count: int, scale: Any) -> Any:
    """``(scale, low, high, up)`` of the best split of an IQ1_S group; `low` is -1 without one."""
    best, low, high = splat(LOWEST), splat(np.int32(-1)), splat(np.int32(-1))
    up = no_lane()
    for first in range(count + 1):
        for second in range(first, count + 1):
            for direction in range(2):
                sum_qx, sum_q2 = _error_terms(sum_x, sum_w, first, second, count, UP if direction == 0 else DOWN)
                better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
                scale = select(better, sum_qx / sum_q2, scale)
                best = select(better, scale * sum_qx, best)
                low, high = select(better, first, low), select(better, second, high)
                up = up | better if direction == 0 else up & ~better
    return scale, low, high, up


@inner
def _iq1_s(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    weights, ranks = stack_array(np.float32, 32), stack_array(np.int32, 32)
    sum_x, sum_w = stack_array(np.float32, 33), stack_array(np.float32, 33)
    codes, heads = stack_array(np.int32, 4), stack_array(np.int32, 8)
    scales, downs = stack_array(np.float32, 8), stack_array(np.int32, 8)
    mean = np.float32(2) * square_sum(x, 0, 256) / np.float32(256)
    maximum = splat(np.float32(0))
    for group in range(8):
        at = 32 * group
        magnitude = weigh(x, importance, at, 32, mean, weights)
        rank(x, at, 32, ranks)
        prefix_sums(x, weights, ranks, at, 0, 32, 32, sum_x, sum_w)
        scale, low, high, up = _best_split(sum_x, sum_w, 32, magnitude)
        active = ~(magnitude < TINY_S) & (low >= 0)
        negative = scale < 0
        split_codes(ranks, 32, low, high, negative, codes)
        scale, up = select(negative, -scale, scale), up ^ negative
        strayed = no_lane()
        for point in range(4):
            strayed = strayed | snap(lattice, x, weights, at, point, scale, up, active, codes)
        sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
        for point in range(4):
            sum_qx, sum_q2 = point_sums(x, weights, at, point, codes, up, splat(np.float32(1)), sum_qx, sum_q2)
        scale = select(strayed & (sum_qx > 0) & (sum_q2 > 0), sum_qx / sum_q2, scale)
        scale = select(active, scale, 0.0)
        head = splat(np.int32(0))
        for point in range(4):
            place = select(active, gather(lattice[0], load(codes, point * LANES)), 0)
            store(y, (2 + 4 * group + point) * LANES, place)
            head = head | ((place >> 8) << 3 * point)
        store(heads, group * LANES, head)
        store(scales, group * LANES, scale)
        store(downs, group * LANES, select(active & ~up, 8, 0))
        maximum = select(maximum > scale, maximum, scale)
    empty = maximum == 0
    d = maximum / np.float32(15)
    inverse = 1.0 / d
    put_half(y, 0, select(empty, 0, to_f16(d * np.float32(1.125))))
    for group in range(8):
        code = clamp(nearest(0.5 * (inverse * load(scales, group * LANES) - 1.0)), np.float32(0), np.float32(7))
        tail = select(empty, 0, (to_int(code) | load(downs, group * LANES)) << 12)
        put_half(y, 34 + 2 * group, load(heads, group * LANES) | tail)


@inner
def _half_terms(sum_x: Any, sum_w: Any, low: int, high: int, top: Any, squares: Any) -> Any:
    """A half's weighted sums of value times element, and of value squared; levels are one apart, the highest is
    `top`."""
    sum_qx = load(sum_x, 16 * LANES) * top - (load(sum_x, low * LANES) + load(sum_x, high * LANES))
    sum_q2 = (
        load(sum_w, 16 * LANES) * top * top
        + load(sum_w, low * LANES) * squares[0]
        + load(sum_w, high * LANES) * squares[1]
    )
    return sum_qx, sum_q2


@inner
def _best_halves(first: Any, second: Any, scale: Any) -> Any:
    """``(scale, low, high, choice)`` of the best split of an IQ1_M group from the prefix sums of its halves.

    Bit 1 of `choice` says that the first half is shifted down, bit 0 the second.
    """
    best, low, high, choice = splat(LOWEST), splat(np.int32(-1)), splat(np.int32(-1)), splat(np.int32(0))
    for i in range(17):
        for j in range(i, 17):
            up_qx, up_q2 = _half_terms(first[0], first[1], i, j, UP[2], HALF_UP)
            down_qx, down_q2 = _half_terms(first[0], first[1], i, j, DOWN[2], HALF_DOWN)
            other_up_qx, other_up_q2 = _half_terms(second[0], second[1], i, j, UP[2], HALF_UP)
            other_down_qx, other_down_q2 = _half_terms(second[0], second[1], i, j, DOWN[2], HALF_DOWN)
            for k in range(4):
                sum_qx = (up_qx if k < 2 else down_qx) + (other_down_qx if k & 1 else other_up_qx)
                sum_q2 = (up_q2 if k < 2 else down_q2) + (other_down_q2 if k & 1 else other_up_q2)
                better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
                scale = select(better, sum_qx / sum_q2, scale)
                best = select(better, scale * sum_qx, best)
                low, high, choice = select(better, i, low), select(better, j, high), select(better, k, choice)
    return scale, low, high, choice


@inner
def _iq1_m(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    weights, ranks = stack_array(np.float32, 16), stack_array(np.int32, 16)
    first = (stack_array(np.float32, 17), stack_array(np.float32, 17))
    second = (stack_array(np.float32, 17), stack_array(np.float32, 17))
    codes, scales, choices = stack_array(np.int32, 32), stack_array(np.float32, 16), stack_array(np.int32, 16)
    mean = np.float32(2) * square_sum(x, 0, 256) / np.float32(256)
    maximum = splat(np.float32(0))
    for group in range(16):
        at = 16 * group
        pair = codes[2 * group * LANES : (2 * group + 2) * LANES]
        magnitude = weigh(x, importance, at, 16, mean, weights)
        rank(x, at, 16, ranks)
        prefix_sums(x, weights, ranks, at, 0, 8, 16, first[0], first[1])
        prefix_sums(x, weights, ranks, at, 8, 16, 16, second[0], second[1])
        scale, low, high, choice = _best_halves(first, second, magnitude)
        active = ~(magnitude < TINY_M) & (low >= 0)
        negative = scale < 0
        split_codes(ranks, 16, low, high, negative, pair)
        scale, choice = select(negative, -scale, scale), select(negative, 3 - choice, choice)
        strayed = snap(lattice, x, weights, at, 0, scale, choice < 2, active, pair)
        strayed = strayed | snap(lattice, x, weights, at, 1, scale, (choice & 1) == 0, active, pair)
        sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
        sum_qx, sum_q2 = point_sums(x, weights, at, 0, pair, choice < 2, splat(np.float32(1)), sum_qx, sum_q2)
        sum_qx, sum_q2 = point_sums(x, weights, at, 1, pair, (choice & 1) == 0, splat(np.float32(1)), sum_qx, sum_q2)
        scale = select(strayed & (sum_qx > 0) & (sum_q2 > 0), sum_qx / sum_q2, scale)
        scale = select(active, scale, 0.0)
        for point in range(2):
            store(pair, point * LANES, select(active, load(pair, point * LANES), 0))
        store(choices, group * LANES, select(active, choice, 0))
        store(scales, group * LANES, scale)
        maximum = select(maximum > scale, maximum, scale)
    _put_iq1_m(x, importance, mean, weights, lattice[0], codes, scales, choices, maximum, y)


@inner
def _put_iq1_m(
    x: Any,
    importance: Any,
    mean: Any,
    weights: Any,
    places: Any,
    codes: Any,
    scales: Any,
    choices: Any,
    maximum: Any,
    y: Any,
) -> None:
    """Quantize the scales of the groups, fit the block's scale to what they became, and write the block."""
    empty = maximum == 0
    d = maximum / np.float32(15)
    inverse = 1.0 / d
    sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
    words = stack_array(np.int32, 4)
    words[:] = 0
    for group in range(16):
        pair = codes[2 * group * LANES : (2 * group + 2) * LANES]
        choice = load(choices, group * LANES)
        code = clamp(nearest(0.5 * (inverse * load(scales, group * LANES) - 1.0)), np.float32(0), np.float32(7))
        word = load(words, (group >> 2) * LANES)
        store(words, (group >> 2) * LANES, word | select(empty, 0, to_int(code) << 3 * (group & 3)))
        weigh(x, importance, 16 * group, 16, mean, weights)
        factor = np.float32(2) * code + np.float32(1)
        sum_qx, sum_q2 = point_sums(x, weights, 16 * group, 0, pair, choice < 2, factor, sum_qx, sum_q2)
        sum_qx, sum_q2 = point_sums(x, weights, 16 * group, 1, pair, (choice & 1) == 0, factor, sum_qx, sum_q2)
        low, high = gather(places, load(pair, 0)), gather(places, load(pair, LANES))
        store(y, 2 * group * LANES, low)
        store(y, (2 * group + 1) * LANES, high)
        shifts = select(empty, 0, ((choice & 2) << 2) | ((choice & 1) << 7))
        store(y, (32 + group) * LANES, (low >> 8) | ((high >> 8) << 4) | shifts)
    d = select(sum_q2 > 0, sum_qx / sum_q2, d)
    half = select(empty, 0, to_f16(d * np.float32(1.1125)))
    for word in range(4):
        put_half(y, 48 + 2 * word, load(words, word * LANES) | (((half >> 4 * word) & 15) << 12))


encode_iq1_s = lane_encoder(_iq1_s, 256, 50, lattice=True)
encode_iq1_m = lane_encoder(_iq1_m, 256, 56, lattice=True)
