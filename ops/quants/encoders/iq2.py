"""Encoders of IQ2_XXS, IQ2_XS and IQ2_S. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import to_f16
from ....runtime.simd.vector import LANES, gather, load, select, splat, stack_array, store
from .iq2_iq3 import flipped, lattice_scale, make_even, quantized_scales, split_signs, weigh
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half
from .simd.scale_search import TINY, positive_scale, square_sum

TOP = 2
TINY_S = 1e-8


@inner
def _iq2_xxs(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    weights, roots = stack_array(np.float32, 32), stack_array(np.float32, 32)
    magnitudes, coarse = stack_array(np.float32, 32), stack_array(np.float32, 32)
    signs, codes = stack_array(np.int32, 4), stack_array(np.int32, 4)
    scales, quantized = stack_array(np.float32, 8), stack_array(np.int32, 8)
    points, packed_signs = stack_array(np.int32, 32), stack_array(np.int32, 8)
    mean = square_sum(x, 0, 256) / np.float32(256)
    maximum = splat(np.float32(0))
    for group in range(8):
        weigh(x, importance, 32 * group, 32, mean, splat(np.float32(0)), weights, roots)
        split_signs(x, 32 * group, 32, magnitudes, signs)
        largest = make_even(32, weights, magnitudes, signs)
        start = positive_scale(magnitudes, weights, 32, TOP + 2, coarse)
        reach = start * np.float32(TOP + 1)
        active = ~(largest < TINY) & ~(reach <= 0)
        codes[:] = 0
        scale = lattice_scale(
            lattice, magnitudes, weights, roots, (32, 8, 2, TOP), (6, np.float32(0.1)), start, reach, active, 2, codes
        )
        negative = active & (scale < 0)
        scale = select(active, select(negative, -scale, scale), 0.0)
        store(scales, group * LANES, scale)
        maximum = select(maximum > scale, maximum, scale)
        packed = splat(np.int32(0))
        for point in range(4):
            place = gather(lattice[0], load(codes, point * LANES))
            store(points, (4 * group + point) * LANES, select(active, place, 0))
            packed = packed | ((flipped(load(signs, point * LANES), negative) & 127) << 7 * point)
        store(packed_signs, group * LANES, select(active, packed, 0))
    d = quantized_scales(scales, 8, maximum, quantized)
    empty = maximum == 0
    put_half(y, 0, select(empty, 0, to_f16(d)))
    for group in range(8):
        word = load(packed_signs, group * LANES) | (load(quantized, group * LANES) << 28)
        for byte in range(4):
            store(y, (2 + 8 * group + byte) * LANES, select(empty, 0, load(points, (4 * group + byte) * LANES)))
            store(y, (6 + 8 * group + byte) * LANES, select(empty, 0, word >> 8 * byte))


@inner
def _search16(
    x: Any,
    importance: Any,
    lattice: Any,
    even: bool,
    mean: Any,
    plain: Any,
    tiny: Any,
    scales: Any,
    codes: Any,
    signs: Any,
) -> Any:
    """Scales, points (two for each group of 16) and sign bytes of a block, and the largest scale."""
    weights, roots = stack_array(np.float32, 16), stack_array(np.float32, 16)
    magnitudes = stack_array(np.float32, 16)
    group_signs, group_codes = stack_array(np.int32, 2), stack_array(np.int32, 2)
    maximum = splat(np.float32(0))
    for group in range(16):
        weigh(x, importance, 16 * group, 16, mean, plain, weights, roots)
        largest = split_signs(x, 16 * group, 16, magnitudes, group_signs)
        if even:
            largest = make_even(16, weights, magnitudes, group_signs)
        active = ~(largest < tiny)
        group_codes[:] = 0
        start = largest / np.float32(2 * TOP + 1)
        scale = lattice_scale(
            lattice,
            magnitudes,
            weights,
            roots,
            (16, 8, 2, TOP),
            (9, np.float32(0.1)),
            start,
            largest,
            active,
            0,
            group_codes,
        )
        negative = active & (scale < 0)
        scale = select(active, select(negative, -scale, scale), 0.0)
        store(scales, group * LANES, scale)
        maximum = select(maximum > scale, maximum, scale)
        for point in range(2):
            place = gather(lattice[0], load(group_codes, point * LANES))
            store(codes, (2 * group + point) * LANES, select(active, place, 0))
            flipped_signs = flipped(load(group_signs, point * LANES), negative)
            store(signs, (2 * group + point) * LANES, select(active, flipped_signs, 0))
    return maximum


@inner
def _put_scales(y: Any, at: int, quantized: Any) -> None:
    for pair in range(8):
        low, high = load(quantized, 2 * pair * LANES), load(quantized, (2 * pair + 1) * LANES)
        store(y, (at + pair) * LANES, low | (high << 4))


@inner
def _iq2_xs(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, quantized = stack_array(np.float32, 16), stack_array(np.int32, 16)
    codes, signs = stack_array(np.int32, 32), stack_array(np.int32, 32)
    mean = square_sum(x, 0, 256) / np.float32(256)
    maximum = _search16(x, importance, lattice, True, mean, splat(np.float32(0)), TINY, scales, codes, signs)
    d = quantized_scales(scales, 16, maximum, quantized)
    empty = maximum == 0
    put_half(y, 0, select(empty, 0, to_f16(d)))
    for point in range(32):
        word = load(codes, point * LANES) | ((load(signs, point * LANES) & 127) << 9)
        put_half(y, 2 + 2 * point, select(empty, 0, word))
    _put_scales(y, 66, quantized)


@inner
def _iq2_s(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, quantized = stack_array(np.float32, 16), stack_array(np.int32, 16)
    codes, signs = stack_array(np.int32, 32), stack_array(np.int32, 32)
    mean = np.float32(2) * square_sum(x, 0, 256) / np.float32(256)
    maximum = _search16(x, importance, lattice, False, mean, np.float32(0.25) * mean, TINY_S, scales, codes, signs)
    d = quantized_scales(scales, 16, maximum, quantized)
    put_half(y, 0, select(maximum == 0, 0, to_f16(d * np.float32(0.9875))))
    for point in range(32):
        store(y, (2 + point) * LANES, load(codes, point * LANES))
        store(y, (34 + point) * LANES, load(signs, point * LANES))
    for byte in range(8):
        packed = splat(np.int32(0))
        for i in range(4):
            packed = packed | ((load(codes, (4 * byte + i) * LANES) >> 8) << 2 * i)
        store(y, (66 + byte) * LANES, packed)
    _put_scales(y, 74, quantized)


encode_iq2_xxs = lane_encoder(_iq2_xxs, 256, 66, lattice=True)
encode_iq2_xs = lane_encoder(_iq2_xs, 256, 74, lattice=True)
encode_iq2_s = lane_encoder(_iq2_s, 256, 82, lattice=True)
