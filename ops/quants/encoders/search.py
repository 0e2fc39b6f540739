"""Searches for the scale of a group of elements, sixteen groups at once. Source: make_qx_quants and its kin in ggml-quants.c.

`x` and `weights` are transposed flat arrays (see `lanes`), `at` the first element of the group in them, `count` its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.kernel import inner
from ....runtime.simd import LANES, any_lane, load, select, splat, store, to_int
from .rounding import byte, clamp, nearest

TINY = 1e-15
"""A group whose largest magnitude is below this is zero."""


@inner
def extreme(x: Any, at: int, count: int) -> Any:
    """The first element of largest magnitude, and that magnitude."""
    value, magnitude = splat(np.float32(0)), splat(np.float32(0))
    for i in range(at, at + count):
        element = load(x, i * LANES)
        larger = abs(element) > magnitude
        magnitude = select(larger, abs(element), magnitude)
        value = select(larger, element, value)
    return value, magnitude


@inner
def square_sum(x: Any, at: int, count: int) -> Any:
    """The sum of squares, in order."""
    total = splat(np.float32(0))
    for i in range(at, at + count):
        element = load(x, i * LANES)
        total += element * element
    return total


@inner
def symmetric_scale(x: Any, weights: Any, at: int, weights_at: int, count: int, top: int) -> Any:
    """``(scale, inverse)`` with codes ``nearest(inverse * x)`` in ``[-top, top)`` that minimise the weighted squared error."""
    highest = np.float32(top)
    value, magnitude = extreme(x, at, count)
    inverse = -highest / value
    scale, best, best_inverse = splat(np.float32(0)), splat(np.float32(0)), inverse
    for step in range(-10, 10):
        if step == 0:
            continue
        if step > -10:
            inverse = -(highest + np.float32(0.1) * np.float32(step)) / value
        sum_lx, sum_l2 = splat(np.float32(0)), splat(np.float32(0))
        for i in range(count):
            element, weight = load(x, (at + i) * LANES), load(weights, (weights_at + i) * LANES)
            code = clamp(nearest(inverse * element), -highest, highest - 1)
            sum_lx += weight * element * code
            sum_l2 += weight * code * code
        if step == -10:
            scale = select(sum_l2 == 0, 0.0, sum_lx / sum_l2)
            best = scale * sum_lx
        else:
            better = (sum_l2 > 0) & (sum_lx * sum_lx > best * sum_l2)
            scale = select(better, sum_lx / sum_l2, scale)
            best = select(better, scale * sum_lx, best)
            best_inverse = select(better, inverse, best_inverse)
    return select(magnitude < TINY, 0.0, scale), best_inverse, magnitude < TINY


@inner
def affine_scale(x: Any, weights: Any, at: int, count: int, top: int, low: Any, delta: Any, steps: int, absolute: bool, codes: Any) -> Any:
    """``(scale, minimum, inverse, base)`` with codes ``nearest(inverse * (x - base))`` in ``[0, top]``, values ``scale * code - minimum``.

    Tries ``steps + 1`` spreads ``low + delta * step + top`` and keeps the one of least weighted error, squared or `absolute`;
    `codes` is room for `count` vectors.
    """
    highest = np.float32(top)
    minimum, maximum = load(x, at * LANES), load(x, at * LANES)
    sum_w = load(weights, 0)
    sum_x = sum_w * minimum
    for i in range(1, count):
        element, weight = load(x, (at + i) * LANES), load(weights, i * LANES)
        minimum = select(element < minimum, element, minimum)
        maximum = select(element > maximum, element, maximum)
        sum_w += weight
        sum_x += weight * element
    minimum = select(minimum > 0, 0.0, minimum)
    flat = maximum == minimum
    start = minimum
    inverse = highest / (maximum - minimum)
    scale = 1.0 / inverse
    error = splat(np.float32(0))
    for i in range(count):
        element = load(x, (at + i) * LANES)
        code = clamp(nearest(inverse * (element - minimum)), np.float32(0), highest)
        difference = scale * code + minimum - element
        error += load(weights, i * LANES) * (abs(difference) if absolute else difference * difference)
    best_inverse, base = inverse, minimum
    for step in range(steps + 1):
        inverse = (low + delta * np.float32(step) + highest) / (maximum - minimum)
        sum_l, sum_l2, sum_xl = splat(np.float32(0)), splat(np.float32(0)), splat(np.float32(0))
        for i in range(count):
            element, weight = load(x, (at + i) * LANES), load(weights, i * LANES)
            code = clamp(nearest(inverse * (element - minimum)), np.float32(0), highest)
            store(codes, i * LANES, code)
            weighted = weight * code
            sum_l += weighted
            sum_l2 += weighted * code
            sum_xl += weighted * element
        determinant = sum_w * sum_l2 - sum_l * sum_l
        this_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
        this_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
        positive = this_minimum > 0
        this_scale = select(positive, sum_xl / sum_l2, this_scale)
        this_minimum = select(positive, 0.0, this_minimum)
        this_error = splat(np.float32(0))
        for i in range(count):
            difference = this_scale * load(codes, i * LANES) + this_minimum - load(x, (at + i) * LANES)
            this_error += load(weights, i * LANES) * (abs(difference) if absolute else difference * difference)
        better = (determinant > 0) & (this_error < error)
        best_inverse, base = select(better, inverse, best_inverse), select(better, minimum, base)
        error, scale = select(better, this_error, error), select(better, this_scale, scale)
        minimum = select(better, this_minimum, minimum)
    return select(flat, 0.0, scale), -select(flat, start, minimum), select(flat, 0.0, best_inverse), select(flat, start, base)


@inner
def positive_scale(x: Any, weights: Any, count: int, top: int, codes: Any) -> Any:
    """The scale of codes in ``[0, top]`` for numbers that are not negative; `codes` gets them, cut to 8 bits as libggml does."""
    highest = np.float32(top)
    maximum = splat(np.float32(0))
    for i in range(count):
        element = load(x, i * LANES)
        maximum = select(maximum > element, maximum, element)
    empty = maximum < TINY
    inverse = highest / maximum
    scale = 1.0 / inverse
    best = splat(np.float32(0))
    for i in range(count):
        element = load(x, i * LANES)
        difference = element - scale * byte(to_int(nearest(inverse * element)))
        best += load(weights, i * LANES) * difference * difference
    for step in range(-4, 5):
        if step == 0:
            continue
        this_inverse = (np.float32(0.1) * np.float32(step) + highest) / maximum
        this_scale = 1.0 / this_inverse
        error = splat(np.float32(0))
        for i in range(count):
            element = load(x, i * LANES)
            code = nearest(this_inverse * element)
            difference = element - this_scale * select(code > highest, highest, code)
            error += load(weights, i * LANES) * difference * difference
        better = error < best
        best, inverse = select(better, error, best), select(better, this_inverse, inverse)
    sum_lx, sum_l2 = splat(np.float32(0)), splat(np.float32(0))
    for i in range(count):
        element, weight = load(x, i * LANES), load(weights, i * LANES)
        code = nearest(inverse * element)
        code = select(code > highest, highest, code)
        store(codes, i * LANES, byte(to_int(code)))
        sum_lx += weight * element * code
        sum_l2 += weight * code * code
    for _ in range(5):
        changed = empty & ~empty
        for i in range(count):
            element, weight, code = load(x, i * LANES), load(weights, i * LANES), load(codes, i * LANES)
            lx = sum_lx - weight * element * code
            l2 = sum_l2 - weight * code * code
            moved = nearest(element * l2 / lx)
            moved = select(moved > highest, highest, moved)
            change = (lx > 0) & (l2 > 0) & (moved != code)
            lx += weight * element * moved
            l2 += weight * moved * moved
            change = change & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            store(codes, i * LANES, select(change, byte(to_int(moved)), code))
            sum_lx, sum_l2 = select(change, lx, sum_lx), select(change, l2, sum_l2)
            changed = changed | change
        if not any_lane(changed):
            break
    for i in range(count):
        store(codes, i * LANES, select(empty, 0.0, load(codes, i * LANES)))
    return select(empty | ~(sum_l2 > 0), 0.0, sum_lx / sum_l2)


@inner
def ternary_scale(x: Any, at: int, count: int, top: int, codes: Any) -> Any:
    """The scale of codes in ``[-top, top)`` weighted by the squares, refined element by element; `codes` gets them from 0 on."""
    highest = np.float32(top)
    value, magnitude = extreme(x, at, count)
    empty = magnitude < TINY
    inverse = -highest / value
    sum_lx, sum_l2 = splat(np.float32(0)), splat(np.float32(0))
    for i in range(count):
        element = load(x, (at + i) * LANES)
        code = clamp(nearest(inverse * element), -highest, highest - 1)
        store(codes, (at + i) * LANES, code)
        weight = element * element
        sum_lx += weight * element * code
        sum_l2 += weight * code * code
    for _ in range(5):
        changed = empty & ~empty
        for i in range(count):
            element, code = load(x, (at + i) * LANES), load(codes, (at + i) * LANES)
            weight = element * element
            lx = sum_lx - weight * element * code
            l2 = sum_l2 - weight * code * code
            moved = clamp(nearest(element * l2 / lx), -highest, highest - 1)
            change = (lx > 0) & (moved != code)
            lx += weight * element * moved
            l2 += weight * moved * moved
            change = change & (l2 > 0) & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            store(codes, (at + i) * LANES, select(change, moved, code))
            sum_lx, sum_l2 = select(change, lx, sum_lx), select(change, l2, sum_l2)
            changed = changed | change
        if not any_lane(changed):
            break
    for i in range(at, at + count):
        store(codes, i * LANES, select(empty, 0.0, load(codes, i * LANES) + highest))
    return select(empty | ~(sum_l2 > 0), 0.0, sum_lx / sum_l2)
