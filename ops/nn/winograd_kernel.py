"""Convolution with kernels of 3 x 3 and strides of one by Winograd's F(4 x 4, 3 x 3): 36 products for 16 outputs, where the sum takes 144.

Squares of 6 x 6 inputs, 4 apart, are transformed, and become columns of panels; kernels have been transformed before; after 36 products of
matrices, results are transformed back. Rounding errors are about those of the sum; what is infinite or NaN reaches all 16 outputs of its
squares. Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks".
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer
from ...runtime.native import f32, number, share
from ...runtime.simd import LANES, select, splat
from ..math.finish_kernel import finished
from ..math.lane_kernel import evens, load_single, load_some, odds, store_single, store_some, zip_high, zip_low
from ..math.tile_kernel import NARROW, PANEL, WIDE, column_of_tiles

EDGE, SQUARE = 4, 36
FEWEST = 12
"""Squares of an image from which there are enough columns."""
ENOUGH = 24
"""Channels and outputs from which the products are more work than the transformations."""
MOST_WEIGHTS = 1 << 26
"""Bytes of transformed kernels that are still read quickly enough."""
CHUNK = 48
"""Outputs whose products lie in the cache until they are transformed back."""
TOGETHER = 8
"""Rows of squares in one panel."""
PITCH = 4 * (PANEL + 2 * LANES)
"""Bytes of a row of inputs of which every fourth is taken."""
STAGED = (EDGE * TOGETHER + 2) * EDGE * PITCH
NEAR, FAR = 2 / 3, 3 / 2
"""The polynomials are known at 0, at these two numbers and their negatives, and at infinity. Errors are a third of those with 1 and 2."""
NEAR_2, FAR_2, BOTH = (np.float32(number) for number in (NEAR**2, FAR**2, NEAR**2 + FAR**2))
NEAR_1, NEAR_3, FAR_1, FAR_3 = (np.float32(number) for number in (NEAR, NEAR**3, FAR, FAR**3))


def _at(point: float, other: float) -> list[float]:
    """A row of what kernels are multiplied with."""
    factor = 2 * point**2 * (point**2 - other**2)
    return [1 / factor, point / factor, point**2 / factor]


KERNEL = np.array([[1, 0, 0], _at(NEAR, FAR), _at(-NEAR, FAR), _at(FAR, NEAR), _at(-FAR, NEAR), [0, 0, 1]])
"""What a kernel is multiplied with from both sides."""


def transformed(w: np.ndarray) -> np.ndarray:
    """Kernels [outputs, channels, 3, 3] as matrices [36, outputs, channels]."""
    made = KERNEL @ w.astype(np.float64) @ KERNEL.T
    return np.ascontiguousarray(made.transpose(2, 3, 0, 1).reshape(SQUARE, *w.shape[:2]).astype(np.float32))


def pays(w: Buffer, geometry: list[int], groups: int) -> bool:
    """Whether a convolution of that geometry (sizes, lengths of the output, kernel, strides, dilations, padding) is one for this file."""
    plain = geometry[6:15] == [1, 3, 3, 1, 1, 1, 1, 1, 1] and geometry[3] == 1 and groups == 1
    outputs, channels = w.shape[:2]
    squares = -(-geometry[4] // EDGE) * -(-geometry[5] // EDGE)
    return WIDE and plain and min(outputs, channels) >= ENOUGH and squares >= FEWEST and w.count * SQUARE // 9 * 4 <= MOST_WEIGHTS


def rows_together(out_width: int) -> int:
    """Rows of squares that are computed together."""
    return max(1, min(TOGETHER, PANEL // -(-out_width // EDGE)))


def scratch_bytes(channels: int) -> int:
    """Memory of a part: transformed inputs, products, two squares of vectors, inputs taken apart, a tile."""
    return 4 * PANEL * SQUARE * (channels + CHUNK) + 2 * 4 * SQUARE * LANES + STAGED + 4 * PANEL * PANEL


@inner
def _lanes(first: Any, last: Any) -> Any:
    """Bits of the lanes from `first` to before `last`, of sixteen."""
    first, last = min(max(first, 0), LANES), min(max(last, 0), LANES)
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _apart(line: Any, column: Any, width: Any, target: Any, count: Any) -> None:
    """Four rows with every fourth element of a row of inputs from `column` on, zeros outside of the row."""
    for start in range(0, count, LANES):
        place, at = line + 4 * (column + EDGE * start), column + EDGE * start
        a = load_some(place, _lanes(-at, width - at))
        b = load_some(place + 64, _lanes(-at - 16, width - at - 16))
        c = load_some(place + 128, _lanes(-at - 32, width - at - 32))
        d = load_some(place + 192, _lanes(-at - 48, width - at - 48))
        even, odd, more_even, more_odd = evens(a, b), odds(a, b), evens(c, d), odds(c, d)
        store_single(target + 4 * start, evens(even, more_even))
        store_single(target + PITCH + 4 * start, evens(odd, more_odd))
        store_single(target + 2 * PITCH + 4 * start, odds(even, more_even))
        store_single(target + 3 * PITCH + 4 * start, odds(odd, more_odd))


@inner
def _forth(source: Any, step: Any, target: Any, apart: Any, lanes: Any) -> None:
    """Six vectors `step` bytes apart, transformed, to places `apart` bytes apart."""
    near, far, both = splat(NEAR_2), splat(FAR_2), splat(BOTH)
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    inner_even, inner_odd = e - c * far, (d - b * far) * splat(NEAR_1)
    outer_even, outer_odd = e - c * near, (d - b * near) * splat(FAR_1)
    store_some(target, a - c * both + e, lanes)
    store_some(target + apart, inner_even + inner_odd, lanes)
    store_some(target + 2 * apart, inner_even - inner_odd, lanes)
    store_some(target + 3 * apart, outer_even + outer_odd, lanes)
    store_some(target + 4 * apart, outer_even - outer_odd, lanes)
    store_some(target + 5 * apart, b - d * both + f, lanes)


@inner
def _back(source: Any, step: Any) -> Any:
    """Four vectors of six."""
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    total, gap, far_total, far_gap = b + c, b - c, d + e, d - e
    first = gap * splat(NEAR_1) + far_gap * splat(FAR_1)
    second = total * splat(NEAR_2) + far_total * splat(FAR_2)
    third = gap * splat(NEAR_3) + far_gap * splat(FAR_3) + f
    return a + total + far_total, first, second, third


@inner
def _columns(args: Any, image: Any, square_row: Any, rows: Any, first: Any, count: Any, made: Any, spare: Any) -> None:
    """The panels of transformed inputs: `count` squares of each of some rows are columns."""
    channels, height, width, pad_y, pad_x = args[8], args[11], args[12], args[26], args[27]
    staged = spare + 4 * SQUARE * LANES
    everything = (1 << LANES) - 1
    for channel in range(channels):
        plane = args[0] + 4 * (image * channels + channel) * height * width
        for row in range(EDGE * rows + 2):
            at = EDGE * square_row + row - pad_y
            inside = width if at >= 0 and at < height else 0
            _apart(plane + 4 * at * width, EDGE * first - pad_x, inside, staged + row * EDGE * PITCH, count + 1)
        for row in range(rows):
            for start in range(0, count, LANES):
                for j in range(6):
                    source = staged + EDGE * row * EDGE * PITCH + j % EDGE * PITCH + 4 * (start + j // EDGE)
                    _forth(source, EDGE * PITCH, spare + 4 * LANES * j, 6 * 4 * LANES, everything)
                target, apart = made + 4 * (channel * PANEL + row * count + start), 4 * PANEL * channels
                for i in range(6):
                    _forth(spare + 6 * 4 * LANES * i, 4 * LANES, target + 6 * i * apart, apart, _lanes(0, count - start))


@inner
def _results(args: Any, channel: Any, products: Any, square_row: Any, rows: Any, first: Any, count: Any, plane: Any, spare: Any) -> None:
    """One output channel of a panel, transformed back, with its bias and limits."""
    out_height, out_width = args[14], args[15]
    low, high = splat(np.float32(number(args[28]))), splat(np.float32(number(args[29])))
    bias = splat(f32(args[3])[channel] if args[4] != 0 else np.float32(0))
    step, line = 4 * PANEL * CHUNK, 4 * LANES
    for row in range(rows):
        for start in range(0, count, LANES):
            source = products + 4 * (row * count + start)
            for j in range(6):
                a, b, c, d = _back(source + step * j, 6 * step)
                store_single(spare + line * j, a)
                store_single(spare + line * (6 + j), b)
                store_single(spare + line * (12 + j), c)
                store_single(spare + line * (18 + j), d)
            column = EDGE * (first + start)
            most = min(out_width - column, EDGE * (count - start))
            for i in range(min(EDGE, out_height - EDGE * (square_row + row))):
                a, b, c, d = _back(spare + 6 * line * i, line)
                a, b, c, d = a + bias, b + bias, c + bias, d + bias
                a, b, c, d = select(a < low, low, a), select(b < low, low, b), select(c < low, low, c), select(d < low, low, d)
                a, b, c, d = select(a > high, high, a), select(b > high, high, b), select(c > high, high, c), select(d > high, high, d)
                target = plane + 4 * ((EDGE * (square_row + row) + i) * out_width + column)
                near, far, near_odd, far_odd = zip_low(a, c), zip_high(a, c), zip_low(b, d), zip_high(b, d)
                store_some(target, zip_low(near, near_odd), _lanes(0, most))
                store_some(target + 64, zip_high(near, near_odd), _lanes(0, most - 16))
                store_some(target + 128, zip_low(far, far_odd), _lanes(0, most - 32))
                store_some(target + 192, zip_high(far, far_odd), _lanes(0, most - 48))


@range_kernel
def convolved_in_squares(args: Any, part: Any, parts: Any) -> None:
    """Arguments as `conv_kernel` says, kernels transformed, and rows of squares that are computed together in place of the slices."""
    y, images, channels, outputs, out_height, out_width, together = args[2], args[6], args[8], args[9], args[14], args[15], args[30]
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    down, across = (out_height + EDGE - 1) // EDGE, (out_width + EDGE - 1) // EDGE
    made = args[31] + part * (4 * PANEL * SQUARE * (channels + CHUNK) + 2 * 4 * SQUARE * LANES + STAGED + 4 * PANEL * PANEL)
    products = made + 4 * PANEL * SQUARE * channels
    spare = products + 4 * PANEL * SQUARE * CHUNK + 4 * SQUARE * LANES
    for j in range(PANEL * SQUARE * channels):
        f32(made)[j] = np.float32(0)
    nothing, least, most = made, np.float32(-np.inf), np.float32(np.inf)
    bands = (down + together - 1) // together
    begin, end = share(images * bands, part, parts)
    for unit in range(begin, end):
        image, square_row = unit // bands, unit % bands * together
        rows = min(together, down - square_row)
        for first in range(0, across, PANEL):
            count = min(PANEL, across - first)
            columns = PANEL if rows * count > NARROW else NARROW
            _columns(args, image, square_row, rows, first, count, made, spare)
            for output in range(0, outputs, CHUNK):
                height = min(CHUNK, outputs - output)
                for place in range(SQUARE):
                    column_of_tiles(
                        args[1] + 4 * (place * outputs + output) * channels, 4 * channels, 4, made + 4 * PANEL * channels * place, channels,
                        products + 4 * PANEL * CHUNK * place, 4 * PANEL, 0, height, columns, args[5], 0, args[5], least, most, nothing,
                    )
                for channel in range(height):
                    plane = y + 4 * (image * outputs + output + channel) * out_height * out_width
                    _results(args, output + channel, products + 4 * PANEL * channel, square_row, rows, first, count, plane, spare)
        if args[32] != 0:
            base = 4 * (image * outputs * out_height + EDGE * square_row) * out_width
            wide = min(EDGE * rows, out_height - EDGE * square_row) * out_width
            step = 4 * out_height * out_width
            finished(args[33], alpha, beta, y + base, step, outputs, wide, added + base if added != 0 else added, step)
