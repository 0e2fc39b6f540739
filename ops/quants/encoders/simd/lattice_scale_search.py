"""Scale search of a group whose codes lie on a lattice: one block at a time, one candidate scale per lane.

Neighbouring candidates mostly have the same combination of codes, so its neighbours are read once for all of them.
`magnitudes`, `weights` and `roots` are transposed arrays of sixteen blocks, of which `lane` is one. Source:
quantize_row_iq2_xxs_impl and similar functions in ggml-quants.c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inlined
from .....runtime.simd.ggml_rounding import nearest_integer
from .....runtime.simd.vector import (
    LANES,
    lane_bits,
    lane_indices,
    load,
    lowest_bit,
    select,
    splat,
    stack_array,
    store,
    to_float,
)
from .lattice_search import FAR

HALVES = 2
"""Vectors that hold the candidates of one group."""
ALL = (1 << LANES) - 1


@inlined
def _combinations(magnitudes: Any, first: int, dims: int, width: int, top: int, inverse: Any) -> Any:
    """The packed combination of one point for each candidate."""
    packed = splat(np.int32(0))
    for i in range(dims):
        code = nearest_integer(0.5 * (inverse * magnitudes[first + i * LANES] - 1.0))
        code = select(code < top, code, top)
        packed = packed | (select(code > 0, code, 0) << width * i)
    return packed


@inlined
def _fill_terms(magnitudes: Any, roots: Any, first: int, dims: int, width: int, scale: Any, terms: Any) -> None:
    """The error contribution of each code of each coordinate."""
    for code in range(1 << width):
        value = scale * np.float32(2 * code + 1)
        for i in range(dims):
            difference = value - magnitudes[first + i * LANES]
            store(terms, ((i << width) + code) * LANES, roots[first + i * LANES] * difference * difference)


@inlined
def _term(terms: Any, code: int, width: int, i: int) -> Any:
    return load(terms, ((i << width) + ((code >> width * i) & ((1 << width) - 1))) * LANES)


@inlined
def _nearest(neighbours: Any, start: int, stop: int, dims: int, width: int, terms: Any) -> Any:
    """The first neighbour of least error for each candidate."""
    best, found = splat(FAR), splat(np.int32(neighbours[np.uintp(start)]))
    for at in range(start, stop):
        code = int(neighbours[np.uintp(at)])
        error = (
            _term(terms, code, width, 0)
            + _term(terms, code, width, 1)
            + _term(terms, code, width, 2)
            + _term(terms, code, width, 3)
        )
        if dims == 8:
            error = (
                error
                + _term(terms, code, width, 4)
                + _term(terms, code, width, 5)
                + _term(terms, code, width, 6)
                + _term(terms, code, width, 7)
            )
        closer = error < best
        best, found = select(closer, error, best), select(closer, np.int32(code), found)
    return found


@inlined
def _snap(
    lattice: Any, magnitudes: Any, roots: Any, first: int, dims: int, width: int, scale: Any, codes: Any, terms: Any
) -> Any:
    """The lattice point of each candidate's combination, and a bit mask of the combinations outside of the lattice."""
    places, starts, stops, neighbours = lattice
    combinations = stack_array(np.int32, 1)
    store(combinations, 0, codes)
    snapped, left, strays = codes, ALL, 0
    while left:
        combination = combinations[lowest_bit(left)]
        same = codes == combination
        tries = lane_bits(same)
        left &= ~tries
        place = places[np.uintp(combination)]
        if place < 0:
            if not strays:
                _fill_terms(magnitudes, roots, first, dims, width, scale, terms)
            strays |= tries
            found = _nearest(neighbours, starts[-1 - place], stops[-1 - place], dims, width, terms)
            snapped = select(same, found, snapped)
    return snapped, strays


@inlined
def _try(
    lattice: Any,
    magnitudes: Any,
    weights: Any,
    roots: Any,
    lane: int,
    shape: Any,
    inverse: Any,
    half: int,
    codes: Any,
    strays: Any,
) -> Any:
    """Weighted sums of value times magnitude, and of value squared, of a group for sixteen tries; `codes` and `strays`
    get each point's."""
    count, dims, width, top = shape
    mask = (1 << width) - 1
    terms = stack_array(np.float32, 32)
    scale = 1.0 / inverse
    sum_qx, sum_q2 = splat(np.float32(0)), splat(np.float32(0))
    for point in range(count // dims):
        first = point * dims * LANES + lane
        packed = _combinations(magnitudes, first, dims, width, top, inverse)
        packed, strays[point * HALVES + half] = _snap(
            lattice, magnitudes, roots, first, dims, width, scale, packed, terms
        )
        store(codes, (point * HALVES + half) * LANES, packed)
        doubled = packed << 1
        for i in range(dims):
            weight = weights[first + i * LANES]
            value = to_float(((doubled >> width * i) & (2 * mask)) | 1)
            sum_qx += weight * magnitudes[first + i * LANES] * value
            sum_q2 += weight * value * value
    return sum_qx, sum_q2


@inlined
def best_try(
    lattice: Any,
    magnitudes: Any,
    weights: Any,
    roots: Any,
    lane: int,
    shape: Any,
    spread: Any,
    start: Any,
    reach: Any,
    codes: Any,
    strays: Any,
) -> Any:
    """The scale of one block's group. Where a try is any good, `codes` and `strays` get the best one's codes, and which
    of them had to be moved.

    Arguments as for `lattice_scale`.
    """
    trial, moved = stack_array(np.int32, 16), stack_array(np.int64, 1)
    sums_qx, sums_q2 = stack_array(np.float32, 2), stack_array(np.float32, 2)
    points, top = shape[0] // shape[1], shape[3]
    tries = 2 * spread[0] + 1
    for half in range((tries + LANES - 1) // LANES):
        step = lane_indices() + (half * LANES - spread[0])
        inverse = (np.float32(2 * top + 1) + to_float(select(step > spread[0], spread[0], step)) * spread[1]) / reach
        sum_qx, sum_q2 = _try(lattice, magnitudes, weights, roots, lane, shape, inverse, half, trial, moved)
        store(sums_qx, half * LANES, sum_qx)
        store(sums_q2, half * LANES, sum_q2)
    scale, best, place = start, np.float32(0), -1
    for step in range(tries):
        sum_qx, sum_q2 = sums_qx[step], sums_q2[step]
        if sum_q2 > 0 and sum_qx * sum_qx > best * sum_q2:
            scale = sum_qx / sum_q2
            best = scale * sum_qx
            place = step
    if place >= 0:
        half, step = place // LANES, place % LANES
        for point in range(points):
            codes[point * LANES + lane] = trial[(point * HALVES + half) * LANES + step]
            strays[point * LANES + lane] = (moved[point * HALVES + half] >> step) & 1
    return scale
