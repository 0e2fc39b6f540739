"""Shared parts of the IQ2 and IQ3 encoders: magnitudes are snapped to a lattice, signs are separate. Source:
ggml-quants.c.

A group of 16 or 32 elements has one scale. Its magnitudes are split into points of eight or four elements; `codes`
holds one packed combination per point, for sixteen groups in sixteen lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import clamp, nearest
from ....runtime.simd.vector import (
    LANES,
    any_lane,
    gather,
    load,
    select,
    splat,
    sqrt,
    stack_array,
    store,
    to_float,
    to_int,
)
from .simd.lattice_scale_search import best_try
from .simd.lattice_search import TERMS, nearest_of_eight, nearest_of_three


@inner
def weigh(x: Any, importance: Any, at: int, count: int, mean: Any, plain: Any, weights: Any, roots: Any) -> None:
    """Weights of a group, ``plain + x * x`` without importance, and their square roots."""
    for i in range(count):
        element = load(x, (at + i) * LANES)
        weight = (
            load(importance, (at + i) * LANES) * sqrt(mean + element * element)
            if importance.size
            else plain + element * element
        )
        store(weights, i * LANES, weight)
        store(roots, i * LANES, sqrt(weight))


@inner
def split_signs(x: Any, at: int, count: int, magnitudes: Any, signs: Any) -> Any:
    """Magnitudes of a group, its signs as bytes, eight elements each, and the largest magnitude."""
    for byte in range(count // 8):
        packed = splat(np.int32(0))
        for i in range(8 * byte, 8 * byte + 8):
            element = load(x, (at + i) * LANES)
            positive = element >= 0
            store(magnitudes, i * LANES, select(positive, element, -element))
            packed = packed | select(positive, 0, 1 << (i & 7))
        store(signs, byte * LANES, packed)
    return largest(magnitudes, count)


@inner
def largest(magnitudes: Any, count: int) -> Any:
    maximum = load(magnitudes, 0)
    for i in range(1, count):
        element = load(magnitudes, i * LANES)
        maximum = select(maximum > element, maximum, element)
    return maximum


@inner
def make_even(count: int, weights: Any, magnitudes: Any, signs: Any) -> Any:
    """Make the number of set sign bits per byte even by flipping the sign with the smallest error; the eighth sign
    is then implied."""
    for byte in range(count // 8):
        packed = load(signs, byte * LANES)
        odd = packed ^ (packed >> 4)
        odd = odd ^ (odd >> 2)
        odd = (odd ^ (odd >> 1)) & 1
        lowest, place = splat(np.float32(0)), splat(np.int32(0))
        for i in range(8):
            magnitude = load(magnitudes, (8 * byte + i) * LANES)
            cost = load(weights, (8 * byte + i) * LANES) * magnitude * magnitude
            if i == 0:
                lowest = cost
            cheaper = cost < lowest
            lowest, place = select(cheaper, cost, lowest), select(cheaper, i, place)
        for i in range(8):
            turn = (odd != 0) & (place == i)
            magnitude = load(magnitudes, (8 * byte + i) * LANES)
            store(magnitudes, (8 * byte + i) * LANES, select(turn, -magnitude, magnitude))
            packed = packed ^ select(turn, 1 << i, 0)
        store(signs, byte * LANES, packed & 127)
    return largest(magnitudes, count)


@inner
def combine(magnitudes: Any, first: int, dims: int, width: int, top: int, inverse: Any) -> Any:
    """The packed combination of one point for an inverse scale."""
    packed = splat(np.int32(0))
    for i in range(dims):
        code = nearest(0.5 * (inverse * load(magnitudes, (first + i) * LANES) - 1.0))
        packed = packed | (to_int(clamp(code, np.float32(0), np.float32(top))) << width * i)
    return packed


@inner
def snap(
    lattice: Any, magnitudes: Any, roots: Any, first: int, dims: int, scale: Any, codes: Any, at: int, active: Any
) -> Any:
    """Replace combinations outside of the lattice, in the active lanes; returns which were inside."""
    places, starts, _, neighbours = lattice
    combination = load(codes, at * LANES)
    place = gather(places, combination)
    on_grid = place >= 0
    if any_lane(active & ~on_grid):
        wanted, scales, terms = stack_array(np.int32, 1), stack_array(np.float32, 1), stack_array(np.float32, TERMS)
        store(wanted, 0, select(active & ~on_grid, -1 - place, -1))
        store(scales, 0, scale)
        for lane in range(LANES):
            if wanted[lane] >= 0:
                start, stop = starts[wanted[lane]], starts[wanted[lane] + 1]
                base = first * LANES + lane
                if dims == 8:
                    _terms(magnitudes, roots, base, scales[lane], terms)
                    codes[at * LANES + lane] = nearest_of_three(neighbours, start, stop, terms)
                else:
                    codes[at * LANES + lane] = nearest_of_eight(
                        neighbours, start, stop, magnitudes, roots, base, scales[lane]
                    )
    return on_grid


@inner
def _terms(magnitudes: Any, roots: Any, base: int, scale: Any, terms: Any) -> None:
    for i in range(8):
        element, root = magnitudes[base + i * LANES], roots[base + i * LANES]
        for code in range(3):
            difference = scale * np.float32(2 * code + 1) - element
            terms[3 * i + code] = root * difference * difference


@inner
def sums(magnitudes: Any, weights: Any, count: int, dims: int, width: int, codes: Any) -> Any:
    """Weighted sums of value times magnitude, and of value squared, over a group."""
    sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
    mask = (1 << width) - 1
    for point in range(count // dims):
        packed = load(codes, point * LANES)
        for i in range(dims):
            weight, magnitude = load(weights, (point * dims + i) * LANES), load(magnitudes, (point * dims + i) * LANES)
            value = to_float((((packed >> width * i) & mask) << 1) | 1)
            sum_qx += weight * magnitude * value
            sum_q2 += weight * value * value
    return sum_qx, sum_q2


@inner
def lattice_scale(
    lattice: Any,
    magnitudes: Any,
    weights: Any,
    roots: Any,
    shape: Any,
    spread: Any,
    start: Any,
    reach: Any,
    active: Any,
    refine: int,
    codes: Any,
) -> Any:
    """The scale of a group whose codes lie on the lattice, and those codes.

    Args:
        shape: (elements of the group, elements of a point, bits of a code, highest code).
        spread: (tries to each side, step between them); the inverse scale is ``2 * highest + 1`` plus steps, over
            `reach`.
        start: the scale if every try fails.
        refine: where codes are recomputed for the best scale: 0 at points outside of the lattice, 1 everywhere if
            one was outside or every try failed, 2 everywhere.
    """
    points = shape[0] // shape[1]
    strays, tried = stack_array(np.int32, 8), stack_array(np.int32, 1)
    scales, reaches = stack_array(np.float32, 1), stack_array(np.float32, 1)
    for point in range(points):
        store(strays, point * LANES, splat(np.int32(refine & 1)))
    store(tried, 0, select(active, 1, splat(np.int32(0))))
    store(scales, 0, start)
    store(reaches, 0, reach)
    for lane in range(LANES):
        if tried[lane]:
            scales[lane] = best_try(
                lattice, magnitudes, weights, roots, lane, shape, spread, scales[lane], reaches[lane], codes, strays
            )
    scale = load(scales, 0)
    return _refined(lattice, magnitudes, weights, roots, shape, scale, strays, active, refine, codes)


@inner
def _refined(
    lattice: Any,
    magnitudes: Any,
    weights: Any,
    roots: Any,
    shape: Any,
    scale: Any,
    strays: Any,
    active: Any,
    refine: int,
    codes: Any,
) -> Any:
    count, dims, width, top = shape
    points = count // dims
    strayed = splat(np.int32(1 if refine == 2 else 0))
    for point in range(points):
        strayed = strayed | load(strays, point * LANES)
    again = active & (strayed != 0) & (scale > 0)
    if not any_lane(again):
        return scale
    trial = stack_array(np.int32, 8)
    for point in range(points):
        here = again & (load(strays, point * LANES) != 0) if refine == 0 else again
        store(trial, point * LANES, combine(magnitudes, point * dims, dims, width, top, 1.0 / scale))
        snap(lattice, magnitudes, roots, point * dims, dims, scale, trial, point, here)
        store(codes, point * LANES, select(here, load(trial, point * LANES), load(codes, point * LANES)))
    sum_qx, sum_q2 = sums(magnitudes, weights, count, dims, width, codes)
    return select(again & (sum_q2 > 0), sum_qx / sum_q2, scale)


@inner
def flipped(signs: Any, negative: Any) -> Any:
    """The sign bits of a byte, all flipped in the lanes whose scale is negative."""
    return select(negative, signs ^ 255, signs)


@inner
def quantized_scales(scales: Any, groups: int, maximum: Any, quantized: Any) -> Any:
    """Scales as ``d * (code + 1/2)`` with 4-bit codes, and d, which is zero for a block of zeros."""
    d = maximum / np.float32(31)
    inverse = 1.0 / d
    for group in range(groups):
        code = clamp(nearest(0.5 * (inverse * load(scales, group * LANES) - 1.0)), np.float32(0), np.float32(15))
        store(quantized, group * LANES, select(maximum == 0, 0, to_int(code)))
    return d
