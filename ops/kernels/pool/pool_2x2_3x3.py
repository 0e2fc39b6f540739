"""Pooling with 2 x 2 and 3 x 3 windows: rows are combined without masks, then 16 windows per step."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.jit.address import f32, share
from ....runtime.jit.range_kernel import inlined, inner, range_kernel
from ....runtime.simd.memory import evens, load_f32, load_masked, odds, store_f32, store_masked
from ....runtime.simd.vector import LANES, any_lane, no_lane, select
from .problem import Pool

LINES = 4096
"""Elements that the joined rows of a band should not have more of, so that they and what they are made of stay in the
first cache."""


@inner
def largest(found: Any, value: Any) -> Any:
    """The larger ones, NaN where there is one."""
    return select(value != value, value, select(value > found, value, found))


@inner
def summed(found: Any, value: Any) -> Any:
    """Sums."""
    return found + value


@inlined
def larger(found: Any, value: Any) -> Any:
    return select(value > found, value, found)


@inner
def seen(position: Any, axis: Any, padded: Any) -> Any:
    """Number of elements of its axis that a window counts; `axis` is size, kernel, stride, dilation, padding before and
    after."""
    size, kernel, stride, dilation, begin, end = axis
    found = 0
    for tap in range(kernel):
        at = position * stride + tap * dilation - begin
        if 0 <= at < size or (padded != 0 and at < size + end):
            found += 1
    return found


@inner
def _holds_nan(source: Any, count: Any) -> Any:
    whole = count - count % (2 * LANES)
    found = no_lane()
    for j in range(0, whole, 2 * LANES):
        low, high = load_f32(source + 4 * j), load_f32(source + 4 * (j + LANES))
        found = found | (low != low) | (high != high)
    for j in range(whole, count, LANES):
        rest = load_masked(source + 4 * j, (1 << min(LANES, count - j)) - 1)
        found = found | (rest != rest)
    return any_lane(found)


def _steps(joined: Any, kernel: int, stride: int, average: bool) -> Any:
    @inlined
    def column(a: Any, b: Any, c: Any) -> Any:
        found = joined(a, b)
        if kernel == 3:
            found = joined(found, c)
        return found

    @inner
    def down(a: Any, b: Any, c: Any, line: Any, width: Any) -> None:
        """Rows joined into one. The last vector overlaps the one before."""
        if width < LANES:
            lanes = (1 << width) - 1
            store_masked(line, column(load_masked(a, lanes), load_masked(b, lanes), load_masked(c, lanes)), lanes)
            return
        last = 4 * (width - LANES)
        for j in range(0, last, 4 * LANES):
            store_f32(line + j, column(load_f32(a + j), load_f32(b + j), load_f32(c + j)))
        store_f32(line + last, column(load_f32(a + last), load_f32(b + last), load_f32(c + last)))

    @inlined
    def windows(line: Any, factors: Any) -> Any:
        """Sixteen windows from address `line` on."""
        low, high = load_f32(line), load_f32(line + 4 * LANES)
        if stride == 1:
            found = column(low, load_f32(line + 4), load_f32(line + 8))
        else:
            third = low
            if kernel == 3:
                third = evens(load_f32(line + 8), load_f32(line + 8 + 4 * LANES))
            found = column(evens(low, high), odds(low, high), third)
        if average:
            found = found * load_f32(factors)
        return found

    @inner
    def across(line: Any, target: Any, count: Any, factors: Any) -> None:
        """The windows of a joined row. The last vector overlaps the one before."""
        if count < LANES:
            store_masked(target, windows(line, factors), (1 << count) - 1)
            return
        last = count - LANES
        for j in range(0, last, LANES):
            store_f32(target + 4 * j, windows(line + 4 * j * stride, factors + 4 * j))
        store_f32(target + 4 * last, windows(line + 4 * last * stride, factors + 4 * last))

    return down, across


def _square(kernel: int, stride: int, average: bool) -> Any:
    nothing = np.float32(0 if average else -math.inf)
    down, across = _steps(summed if average else larger, kernel, stride, average)
    careful_down, careful_across = _steps(largest, kernel, stride, average)

    @inner
    def row(plane: Any, at: Any, height: Any, width: Any, empty: Any) -> Any:
        return plane + 4 * at * width if 0 <= at < height else empty

    @range_kernel(unroll=False)
    def pooled_by_squares(pool: Pool, part: int, parts: int) -> None:
        """Arguments as `pooled` has them; two rows of scratch more than a band has: factors of the outputs of a row,
        and a row of nothing."""
        height, width, out_height, out_width = pool.height, pool.width, pool.out_height, pool.out_width
        pad_y, pad_x, padded = pool.pad_y, pool.pad_x, pool.padded
        wide, band = pool.wide, pool.band
        lines = pool.scratch + part * 4 * wide * (band + 2)
        factors, empty = lines + 4 * wide * band, lines + 4 * wide * (band + 1)
        for j in range(wide * (band + 2)):
            f32(lines)[j] = nothing
        bands = (out_height + band - 1) // band
        first, last = share(pool.planes * bands, part, parts)
        counted = -1
        for unit in range(first, last):
            plane, begin = unit // bands, unit % bands * band
            source, rows = pool.x + 4 * plane * height * width, min(band, out_height - begin)
            target = pool.y + 4 * (plane * out_height + begin) * out_width
            start = max(0, begin * stride - pad_y)
            end = min(height, (begin + rows - 1) * stride - pad_y + kernel)
            careful = not average and _holds_nan(source + 4 * start * width, max(0, end - start) * width)
            for index in range(rows):
                at, line = (begin + index) * stride - pad_y, lines + 4 * (index * wide + pad_x)
                a, b, c = (
                    row(source, at, height, width, empty),
                    row(source, at + 1, height, width, empty),
                    row(source, at + 2, height, width, empty),
                )
                if careful:
                    careful_down(a, b, c, line, width)
                else:
                    down(a, b, c, line, width)
            for index in range(rows):
                line, y = lines + 4 * index * wide, target + 4 * index * out_width
                if average:
                    high = seen(begin + index, (height, kernel, stride, 1, pad_y, pool.end_y), padded)
                    if high != counted:
                        for j in range(out_width):
                            f32(factors)[j] = np.float32(1) / np.float32(
                                high * seen(j, (width, kernel, stride, 1, pad_x, pool.end_x), padded)
                            )
                        counted = high
                if careful:
                    careful_across(line, y, out_width, factors)
                else:
                    across(line, y, out_width, factors)

    return pooled_by_squares


SQUARES = {
    (average, kernel, stride): _square(kernel, stride, average)
    for average in (False, True)
    for kernel, stride in ((2, 2), (3, 1), (3, 2))
}
"""Kernels by whether they average, the length of the window and its stride."""
