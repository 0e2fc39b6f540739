"""Encoders of IQ3_XXS and IQ3_S. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import to_f16
from ....runtime.simd.vector import LANES, gather, load, select, splat, stack_array, store
from .iq2_iq3 import flipped, lattice_scale, make_even, quantized_scales, split_signs, weigh
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half
from .simd.scale_search import square_sum

TOP = 7
TINY_XXS = 1e-8


@inner
def _search(
    x: Any,
    importance: Any,
    lattice: Any,
    even: bool,
    tries: int,
    tiny: Any,
    refine: int,
    scales: Any,
    codes: Any,
    signs: Any,
) -> Any:
    """Scales, points (eight for each group of 32) and sign bytes of a block, and the largest scale."""
    weights, roots = stack_array(np.float32, 32), stack_array(np.float32, 32)
    magnitudes = stack_array(np.float32, 32)
    group_signs, group_codes = stack_array(np.int32, 4), stack_array(np.int32, 8)
    mean = np.float32(2) * square_sum(x, 0, 256) / np.float32(256)
    maximum = splat(np.float32(0))
    for group in range(8):
        weigh(x, importance, 32 * group, 32, mean, splat(np.float32(0)), weights, roots)
        largest = split_signs(x, 32 * group, 32, magnitudes, group_signs)
        if even:
            largest = make_even(32, weights, magnitudes, group_signs)
        active = ~(largest < tiny) & ~(largest == 0)
        group_codes[:] = 0
        start = largest / np.float32(2 * TOP + 1)
        scale = lattice_scale(
            lattice,
            magnitudes,
            weights,
            roots,
            (32, 4, 3, TOP),
            (tries, np.float32(0.2)),
            start,
            largest,
            active,
            refine,
            group_codes,
        )
        negative = active & (scale < 0)
        scale = select(active, select(negative, -scale, scale), 0.0)
        store(scales, group * LANES, scale)
        maximum = select(maximum > scale, maximum, scale)
        for point in range(8):
            place = gather(lattice[0], load(group_codes, point * LANES))
            store(codes, (8 * group + point) * LANES, select(active, place, 0))
        for byte in range(4):
            flipped_signs = flipped(load(group_signs, byte * LANES), negative)
            store(signs, (4 * group + byte) * LANES, select(active, flipped_signs, 0))
    return maximum


@inner
def _iq3_xxs(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, quantized = stack_array(np.float32, 8), stack_array(np.int32, 8)
    codes, signs = stack_array(np.int32, 64), stack_array(np.int32, 32)
    maximum = _search(x, importance, lattice, True, 15, TINY_XXS, 0, scales, codes, signs)
    empty = maximum == 0
    d = quantized_scales(scales, 8, maximum, quantized)
    put_half(y, 0, select(empty, 0, to_f16(d * np.float32(1.0125))))
    for point in range(64):
        store(y, (2 + point) * LANES, select(empty, 0, load(codes, point * LANES)))
    for group in range(8):
        word = load(quantized, group * LANES) << 28
        for i in range(4):
            word = word | ((load(signs, (4 * group + i) * LANES) & 127) << 7 * i)
        for byte in range(4):
            store(y, (66 + 4 * group + byte) * LANES, select(empty, 0, word >> 8 * byte))


@inner
def _iq3_s(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scales, quantized = stack_array(np.float32, 8), stack_array(np.int32, 8)
    codes, signs = stack_array(np.int32, 64), stack_array(np.int32, 32)
    maximum = _search(x, importance, lattice, False, 9, np.float32(0), 1, scales, codes, signs)
    d = quantized_scales(scales, 8, maximum, quantized)
    put_half(y, 0, select(maximum == 0, 0, to_f16(d * np.float32(1.033))))
    for byte in range(8):
        packed = splat(np.int32(0))
        for i in range(8):
            packed = packed | ((load(codes, (8 * byte + i) * LANES) >> 8) << i)
        store(y, (66 + byte) * LANES, packed)
    _close_gaps(x, codes, 8)
    _close_gaps(x, signs, 4)
    for point in range(64):
        store(y, (2 + point) * LANES, load(codes, point * LANES))
    for byte in range(32):
        store(y, (74 + byte) * LANES, load(signs, byte * LANES))
    for pair in range(4):
        low, high = load(quantized, 2 * pair * LANES), load(quantized, (2 * pair + 1) * LANES)
        store(y, (106 + pair) * LANES, low | (high << 4))


@inner
def _close_gaps(x: Any, values: Any, count: int) -> None:
    """Move the values of later groups, `count` each, over those of groups that are all zero.

    libggml does not advance over a group of zeros when it writes points and signs, so later groups of the block land 32
    elements early. The encoder reproduces this, for byte-identical files.
    """
    for lane in range(LANES):
        target = 0
        for group in range(8):
            empty = True
            for i in range(32 * group, 32 * group + 32):
                empty = empty and x[i * LANES + lane] == 0
            if empty:
                continue
            for i in range(count):
                values[(target + i) * LANES + lane] = values[(count * group + i) * LANES + lane]
            target += count
        for i in range(target, 8 * count):
            values[i * LANES + lane] = 0


encode_iq3_xxs = lane_encoder(_iq3_xxs, 256, 98, lattice=True)
encode_iq3_s = lane_encoder(_iq3_s, 256, 110, lattice=True)
