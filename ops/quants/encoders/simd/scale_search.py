"""Scale searches of groups of elements, sixteen groups at once. Source: make_qx_quants and similar functions in
ggml-quants.c.

`x` and `weights` are transposed flat arrays (see `block_per_lane`), `at` is the first element of the group, `count` its
length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inlined, inner
from .....runtime.simd.ggml_rounding import byte, clamp, nearest
from .....runtime.simd.vector import LANES, any_lane, load, no_lane, select, splat, stack_array, store, to_int

TINY = 1e-15
"""Groups whose largest magnitude is below this count as zero."""
INFINITY = np.float32(np.inf)
LOWEST = -4194304.0
"""The lowest result of `nearest`."""


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
def _symmetric_sums(x: Any, weights: Any, at: int, weights_at: int, count: int, highest: Any, inverse: Any) -> Any:
    """Weighted sums of code times element, and of code squared."""
    sum_lx, sum_l2 = splat(np.float32(0)), splat(np.float32(0))
    for i in range(count):
        element, weight = load(x, (at + i) * LANES), load(weights, (weights_at + i) * LANES)
        code = clamp(nearest(inverse * element), -highest, highest - 1)
        sum_lx += weight * element * code
        sum_l2 += weight * code * code
    return sum_lx, sum_l2


@inner
def symmetric_scale(x: Any, weights: Any, at: int, weights_at: int, count: int, top: int) -> Any:
    """``(scale, inverse, empty)``: codes ``nearest(inverse * x)`` in ``[-top, top)`` minimise the weighted squared
    error of ``scale * code``.

    `empty` marks groups of zeros: their scale is zero, and libggml's codes for them are its lowest ones.
    """
    highest = np.float32(top)
    value, magnitude = extreme(x, at, count)
    best_inverse = -highest / value
    sum_lx, sum_l2 = _symmetric_sums(x, weights, at, weights_at, count, highest, best_inverse)
    scale = select(sum_l2 == 0, 0.0, sum_lx / sum_l2)
    best = scale * sum_lx
    for step in range(-9, 10):
        if step == 0:
            continue
        inverse = -(highest + np.float32(0.1) * np.float32(step)) / value
        sum_lx, sum_l2 = _symmetric_sums(x, weights, at, weights_at, count, highest, inverse)
        better = (sum_l2 > 0) & (sum_lx * sum_lx > best * sum_l2)
        scale = select(better, sum_lx / sum_l2, scale)
        best = select(better, scale * sum_lx, best)
        best_inverse = select(better, inverse, best_inverse)
    empty = magnitude < TINY
    return select(empty, 0.0, scale), best_inverse, empty


@inner
def _affine_start(x: Any, weights: Any, at: int, count: int) -> Any:
    """``(minimum, maximum, sum of weights, weighted sum)`` of a group; the minimum is at most zero."""
    minimum, maximum = load(x, at * LANES), load(x, at * LANES)
    sum_w = load(weights, 0)
    sum_x = sum_w * minimum
    for i in range(1, count):
        element, weight = load(x, (at + i) * LANES), load(weights, i * LANES)
        minimum = select(element < minimum, element, minimum)
        maximum = select(element > maximum, element, maximum)
        sum_w += weight
        sum_x += weight * element
    return select(minimum > 0, 0.0, minimum), maximum, sum_w, sum_x


@inner
def _affine_codes(
    x: Any, weights: Any, at: int, count: int, highest: Any, inverse: Any, minimum: Any, codes: Any
) -> Any:
    """Codes for a spread, and their weighted sums: plain, squared, times the element."""
    sum_l, sum_l2, sum_xl = splat(np.float32(0)), splat(np.float32(0)), splat(np.float32(0))
    for i in range(count):
        element, weight = load(x, (at + i) * LANES), load(weights, i * LANES)
        code = clamp(nearest(inverse * (element - minimum)), np.float32(0), highest)
        store(codes, i * LANES, code)
        weighted = weight * code
        sum_l += weighted
        sum_l2 += weighted * code
        sum_xl += weighted * element
    return sum_l, sum_l2, sum_xl


@inner
def _affine_error(
    x: Any, weights: Any, at: int, count: int, scale: Any, minimum: Any, absolute: bool, codes: Any
) -> Any:
    """The weighted error of ``scale * code + minimum``."""
    error = splat(np.float32(0))
    for i in range(count):
        difference = scale * load(codes, i * LANES) + minimum - load(x, (at + i) * LANES)
        error += load(weights, i * LANES) * (abs(difference) if absolute else difference * difference)
    return error


@inner
def affine_scale(
    x: Any, weights: Any, at: int, count: int, top: int, low: Any, delta: Any, steps: int, absolute: bool, codes: Any
) -> Any:
    """``(scale, minimum, inverse, base)`` with codes ``nearest(inverse * (x - base))`` in ``[0, top]``, values
    ``scale * code - minimum``.

    Tries ``steps + 1`` spreads ``low + delta * step + top`` and keeps the one of least weighted error, squared or
    `absolute`; `codes` is room for `count` vectors.
    """
    highest = np.float32(top)
    start, maximum, sum_w, sum_x = _affine_start(x, weights, at, count)
    flat = maximum == start
    minimum = base = start
    best_inverse = highest / (maximum - minimum)
    scale = 1.0 / best_inverse
    _affine_codes(x, weights, at, count, highest, best_inverse, minimum, codes)
    error = _affine_error(x, weights, at, count, scale, minimum, absolute, codes)
    for step in range(steps + 1):
        inverse = (low + delta * np.float32(step) + highest) / (maximum - minimum)
        sum_l, sum_l2, sum_xl = _affine_codes(x, weights, at, count, highest, inverse, minimum, codes)
        determinant = sum_w * sum_l2 - sum_l * sum_l
        this_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
        positive = this_minimum > 0
        this_scale = select(positive, sum_xl / sum_l2, (sum_w * sum_xl - sum_x * sum_l) / determinant)
        this_minimum = select(positive, 0.0, this_minimum)
        this_error = _affine_error(x, weights, at, count, this_scale, this_minimum, absolute, codes)
        better = (determinant > 0) & (this_error < error)
        best_inverse, base = select(better, inverse, best_inverse), select(better, minimum, base)
        error, scale = select(better, this_error, error), select(better, this_scale, scale)
        minimum = select(better, this_minimum, minimum)
    return (
        select(flat, 0.0, scale),
        -select(flat, start, minimum),
        select(flat, 0.0, best_inverse),
        select(flat, start, base),
    )


@inner
def _positive_error(x: Any, weights: Any, count: int, top: int, inverse: Any) -> Any:
    """The weighted squared error of codes for a scale's inverse."""
    scale = 1.0 / inverse
    error = splat(np.float32(0))
    for i in range(count):
        element = load(x, i * LANES)
        code = nearest(inverse * element)
        difference = element - scale * select(code > np.float32(top), np.float32(top), code)
        error += load(weights, i * LANES) * difference * difference
    return error


@inner
def _refine_bytes(x: Any, weights: Any, count: int, high: Any, sum_lx: Any, sum_l2: Any, codes: Any) -> Any:
    """Up to five rounds that change one code at a time where that lowers the error; the sums afterwards. Codes keep 8
    bits."""
    for _ in range(5):
        changed = no_lane()
        for i in range(count):
            element, weight, code = load(x, i * LANES), load(weights, i * LANES), load(codes, i * LANES)
            lx = sum_lx - weight * element * code
            l2 = sum_l2 - weight * code * code
            moved = clamp(nearest(element * l2 / lx), np.float32(LOWEST), high)
            change = (lx > 0) & (moved != code) & (l2 > 0)
            lx += weight * element * moved
            l2 += weight * moved * moved
            change = change & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            store(codes, i * LANES, select(change, byte(to_int(moved)), code))
            sum_lx, sum_l2 = select(change, lx, sum_lx), select(change, l2, sum_l2)
            changed = changed | change
        if not any_lane(changed):
            break
    return sum_lx, sum_l2


@inner
def positive_scale(x: Any, weights: Any, count: int, top: int, codes: Any) -> Any:
    """The scale of codes in ``[0, top]`` for numbers that are not negative; `codes` gets them, cut to 8 bits as libggml
    does."""
    highest = np.float32(top)
    maximum = splat(np.float32(0))
    for i in range(count):
        element = load(x, i * LANES)
        maximum = select(maximum > element, maximum, element)
    empty = maximum < TINY
    inverse = highest / maximum
    best = _positive_start_error(x, weights, count, inverse)
    for step in range(-4, 5):
        if step == 0:
            continue
        this_inverse = (np.float32(0.1) * np.float32(step) + highest) / maximum
        error = _positive_error(x, weights, count, top, this_inverse)
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
    sum_lx, sum_l2 = _refine_bytes(x, weights, count, highest, sum_lx, sum_l2, codes)
    for i in range(count):
        store(codes, i * LANES, select(empty, 0.0, load(codes, i * LANES)))
    return select(empty | ~(sum_l2 > 0), 0.0, sum_lx / sum_l2)


@inner
def _positive_start_error(x: Any, weights: Any, count: int, inverse: Any) -> Any:
    """As `_positive_error` for the first try, whose codes libggml cuts to 8 bits instead of bounding them."""
    scale = 1.0 / inverse
    error = splat(np.float32(0))
    for i in range(count):
        element = load(x, i * LANES)
        difference = element - scale * byte(to_int(nearest(inverse * element)))
        error += load(weights, i * LANES) * difference * difference
    return error


@inlined
def _bounds(code: Any, low: Any, high: Any) -> Any:
    """Between these quotients a code is the nearest for certain, whatever the last bits are."""
    lower = select(code > low, code - np.float32(0.499), -INFINITY)
    return lower, select(code < high, code + np.float32(0.499), INFINITY)


@inlined
def _refine(x: Any, at: int, count: int, low: Any, high: Any, sum_lx: Any, sum_l2: Any, terms: Any) -> Any:
    """Up to five rounds that change one code at a time where that lowers the error weighted by squares; the sums
    afterwards.

    `terms` are the codes, what each adds to the sums, and its bounds. Most codes are the nearest already, which is seen
    without a division. Lanes without a change in one round have none in the next.
    """
    codes, lx_terms, l2_terms, lowers, uppers = terms
    active = ~no_lane()
    for _ in range(5):
        changed = no_lane()
        for i in range(count):
            element = load(x, (at + i) * LANES)
            lx, l2 = sum_lx - load(lx_terms, i * LANES), sum_l2 - load(l2_terms, i * LANES)
            product = element * l2
            settled = (product > load(lowers, i * LANES) * lx) & (product < load(uppers, i * LANES) * lx)
            if any_lane(active & ~settled & (lx > 0)):
                code, weight = load(codes, i * LANES), element * element
                moved = clamp(nearest(product / lx), low, high)
                change = (lx > 0) & (moved != code)
                lx_term, l2_term = weight * element * moved, weight * moved * moved
                lx += lx_term
                l2 += l2_term
                change = change & (lx * lx * sum_l2 > sum_lx * sum_lx * l2) & (l2 > 0)
                moved = select(change, moved, code)
                lower, upper = _bounds(moved, low, high)
                store(codes, i * LANES, moved)
                store(lx_terms, i * LANES, select(change, lx_term, load(lx_terms, i * LANES)))
                store(l2_terms, i * LANES, select(change, l2_term, load(l2_terms, i * LANES)))
                store(lowers, i * LANES, lower)
                store(uppers, i * LANES, upper)
                sum_lx, sum_l2 = select(change, lx, sum_lx), select(change, l2, sum_l2)
                changed = changed | change
        if not any_lane(changed):
            break
        active = changed
    return sum_lx, sum_l2


@inlined
def refined_scale(x: Any, at: int, count: int, top: int, codes: Any) -> Any:
    """The scale of at most 16 codes in ``[-top, top)`` weighted by the squares, refined element by element; `codes`
    gets them as integers from 0."""
    low, high = -np.float32(top), np.float32(top - 1)
    value, magnitude = extreme(x, at, count)
    empty = magnitude < TINY
    inverse = low / value
    sum_lx, sum_l2 = splat(np.float32(0)), splat(np.float32(0))
    terms = (
        stack_array(np.float32, 16),
        stack_array(np.float32, 16),
        stack_array(np.float32, 16),
        stack_array(np.float32, 16),
        stack_array(np.float32, 16),
    )
    for i in range(count):
        element = load(x, (at + i) * LANES)
        weight = element * element
        code = clamp(nearest(inverse * element), low, high)
        lx_term, l2_term = weight * element * code, weight * code * code
        lower, upper = _bounds(code, low, high)
        store(terms[0], i * LANES, code)
        store(terms[1], i * LANES, lx_term)
        store(terms[2], i * LANES, l2_term)
        store(terms[3], i * LANES, lower)
        store(terms[4], i * LANES, upper)
        sum_lx += lx_term
        sum_l2 += l2_term
    sum_lx, sum_l2 = _refine(x, at, count, low, high, sum_lx, sum_l2, terms)
    for i in range(count):
        store(codes, (at + i) * LANES, to_int(select(empty, 0.0, load(terms[0], i * LANES) - low)))
    return select(empty | ~(sum_l2 > 0), 0.0, sum_lx / sum_l2)
