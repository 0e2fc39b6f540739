"""Shared parts of the IQ1_S and IQ1_M encoders: splits into low, middle and high elements, and the lattice. Source:
ggml-quants.c.

The best split is found exactly: over sorted elements, prefix sums give the error of every pair of boundaries. Each of
the three levels -1, 0, 1 is shifted up or down by an eighth; IQ1_M chooses the shift for each half of its groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.vector import LANES, any_lane, gather, load, select, splat, sqrt, stack_array, store
from ..layout.value_tables import IQ1_DELTA
from .simd.lattice_search import TERMS, nearest_of_three

UP = (np.float32(-1 + IQ1_DELTA), np.float32(IQ1_DELTA), np.float32(1 + IQ1_DELTA))
DOWN = (np.float32(-1 - IQ1_DELTA), np.float32(-IQ1_DELTA), np.float32(1 - IQ1_DELTA))
LOWEST = np.float32(np.finfo(np.float32).min)


@inner
def weigh(x: Any, importance: Any, at: int, count: int, mean: Any, weights: Any) -> Any:
    """Weights of a group, and its largest magnitude."""
    magnitude = abs(load(x, at * LANES))
    for i in range(count):
        element = load(x, (at + i) * LANES)
        weight = (
            load(importance, (at + i) * LANES) * sqrt(mean + element * element)
            if importance.size
            else element * element
        )
        store(weights, i * LANES, weight)
        magnitude = select(magnitude > abs(element), magnitude, abs(element))
    return magnitude


@inner
def rank(x: Any, at: int, count: int, ranks: Any) -> None:
    """The rank of each element in ascending order; stable."""
    for i in range(count):
        element = load(x, (at + i) * LANES)
        rank = splat(np.int32(0))
        for j in range(count):
            other = load(x, (at + j) * LANES)
            before = other <= element if j < i else other < element
            rank = rank + select(before, 1, 0)
        store(ranks, i * LANES, rank)


@inner
def prefix_sums(
    x: Any, weights: Any, ranks: Any, at: int, first: int, last: int, count: int, sum_x: Any, sum_w: Any
) -> None:
    """Prefix sums over the elements ``[first, last)`` of a group among its `count` sorted elements."""
    sorted_x, sorted_w, here = stack_array(np.float32, 32), stack_array(np.float32, 32), stack_array(np.int32, 32)
    for i in range(count):
        store(sorted_x, i * LANES, splat(np.float32(0)))
        store(sorted_w, i * LANES, splat(np.float32(0)))
        store(here, i * LANES, splat(np.int32(0)))
    for i in range(first, last):
        for lane in range(LANES):
            place = ranks[i * LANES + lane] * LANES + lane
            weight = np.float32(weights[i * LANES + lane])
            sorted_x[place] = weight * x[(at + i) * LANES + lane]
            sorted_w[place] = weight
            here[place] = 1
    total_x, total_w = splat(np.float32(0)), splat(np.float32(0))
    store(sum_x, 0, total_x)
    store(sum_w, 0, total_w)
    for i in range(count):
        present = load(here, i * LANES) != 0
        total_x = select(present, total_x + load(sorted_x, i * LANES), total_x)
        total_w = select(present, total_w + load(sorted_w, i * LANES), total_w)
        store(sum_x, (i + 1) * LANES, total_x)
        store(sum_w, (i + 1) * LANES, total_w)


@inner
def _level(choice: Any, up: Any, down: Any) -> Any:
    """A level, shifted up where `choice` is set, else down."""
    return select(choice, up, splat(down))


@inner
def split_codes(ranks: Any, count: int, low: Any, high: Any, negative: Any, codes: Any) -> None:
    """Packed codes of a split: 0 for ranks below `low`, 2 from `high` on, exchanged where the scale is negative."""
    for point in range(count // 8):
        packed = splat(np.int32(0))
        for i in range(8):
            rank = load(ranks, (8 * point + i) * LANES)
            code = select(rank < low, 0, select(rank < high, 1, splat(np.int32(2))))
            packed = packed | (select(negative, 2 - code, code) << 2 * i)
        store(codes, point * LANES, packed)


@inner
def snap(lattice: Any, x: Any, weights: Any, at: int, point: int, scale: Any, up: Any, active: Any, codes: Any) -> Any:
    """Replace combinations outside of the lattice by their nearest points, in the active lanes; returns where."""
    places, starts, _, neighbours = lattice
    place = gather(places, load(codes, point * LANES))
    strayed = active & (place < 0)
    if any_lane(strayed):
        wanted, ups = stack_array(np.int32, 1), stack_array(np.int32, 1)
        scales, terms = stack_array(np.float32, 1), stack_array(np.float32, TERMS)
        store(wanted, 0, select(strayed, -1 - place, -1))
        store(ups, 0, select(up, 1, 0))
        store(scales, 0, scale)
        for lane in range(LANES):
            if wanted[lane] >= 0:
                for i in range(8):
                    element, weight = x[(at + 8 * point + i) * LANES + lane], weights[(8 * point + i) * LANES + lane]
                    for code in range(3):
                        difference = np.float32(scales[lane]) * (UP[code] if ups[lane] else DOWN[code]) - element
                        terms[3 * i + code] = weight * difference * difference
                start, stop = starts[wanted[lane]], starts[wanted[lane] + 1]
                codes[point * LANES + lane] = nearest_of_three(neighbours, start, stop, terms)
    return strayed


@inner
def point_sums(
    x: Any, weights: Any, at: int, point: int, codes: Any, up: Any, factor: Any, sum_qx: Any, sum_q2: Any
) -> Any:
    """Add a point's weighted sums of value times element, and of value squared."""
    packed = load(codes, point * LANES)
    for i in range(8):
        code = (packed >> 2 * i) & 3
        low, middle, high = _level(up, UP[0], DOWN[0]), _level(up, UP[1], DOWN[1]), _level(up, UP[2], DOWN[2])
        value = select(code == 0, low, select(code == 1, middle, high)) * factor
        weight = load(weights, (8 * point + i) * LANES)
        sum_qx += weight * value * load(x, (at + 8 * point + i) * LANES)
        sum_q2 += weight * value * value
    return sum_qx, sum_q2
