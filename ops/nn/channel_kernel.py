"""Convolution of channels each for itself (depthwise): a band of the plane with its padding is copied once, then sixteen outputs at a time are
summed in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.kernel import inlined, inner, range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import f32, number, share
from ...runtime.simd import LANES, load, room, select, splat
from ..math.finish_kernel import Finish, finished
from ..math.lane_kernel import evens, fma, load_even, load_single, load_some, odds, store_single, store_some
from .problem_kernel import Problem, Way

BAND = 16384
"""Elements that a band of the input should not have more of."""
MANY = 4
"""Outputs of one channel from which a product of matrices is faster."""


def padded_width(geometry: Sequence[int]) -> int:
    """Elements of a padded row, with room for vectors that start in it."""
    out, kernel, stride, dilation = (geometry[index] for index in (5, 8, 11, 14))
    return (-(-out // LANES) * LANES - 1) * stride + (kernel - 1) * dilation + 1 + 2 * LANES


def band_rows(geometry: Sequence[int]) -> int:
    """Rows of the output in a band."""
    return max(1, min(geometry[4], BAND // (padded_width(geometry) * geometry[10])))


def band_room(geometry: Sequence[int]) -> int:
    """Elements of a band of the input."""
    kernel, stride, dilation = (geometry[index] for index in (7, 10, 13))
    return ((band_rows(geometry) - 1) * stride + (kernel - 1) * dilation + 1) * padded_width(geometry) + LANES


@inner
def filled(target: Any, count: Any, value: Any) -> None:
    """`count` elements, and up to fifteen behind them, of one value."""
    vector = splat(value)
    for j in range(0, count, LANES):
        store_single(target + 4 * j, vector)


@inner
def copied(source: Any, height: Any, width: Any, first: Any, rows: Any, pad: Any, target: Any, wide: Any, value: Any) -> None:
    """Rows of a plane from `first` on, `pad` elements behind the starts of rows that hold nothing but `value`; rows outside of it hold that too."""
    held = max(0, min(width, wide - pad))
    whole = held - held % LANES
    rest = (1 << (held - whole)) - 1
    for index in range(rows):
        at, line = first + index, target + 4 * (index * wide + pad)
        row = source + 4 * at * width
        if at < 0 or at >= height:
            for j in range(0, whole, LANES):
                store_single(line + 4 * j, splat(value))
            store_some(line + 4 * whole, splat(value), rest)
            continue
        for j in range(0, whole, LANES):
            store_single(line + 4 * j, load_single(row + 4 * j))
        store_some(line + 4 * whole, load_some(row + 4 * whole, rest), rest)


@inner
def window_sums(source: Any, step: Any, weights: Any, start: Any, kernel_y: Any, kernel_x: Any, row: Any, dilation: Any) -> Any:
    """Sixteen outputs `step` elements of the input apart."""
    spare = room(np.float32, 1)
    total = splat(start)
    for ky in range(kernel_y):
        for kx in range(kernel_x):
            place = source + ky * row + kx * dilation
            factor = splat(f32(weights)[ky * kernel_x + kx])
            if step == 1:
                total = fma(load_single(place), factor, total)
            elif step == 2:
                total = fma(load_even(place), factor, total)
            else:
                for lane in range(LANES):
                    spare[lane] = f32(place)[lane * step]
                total = fma(load(spare, 0), factor, total)
    return total


def _four(read: Any) -> Any:
    @inner
    def sums(source: Any, below: Any, weights: Any, start: Any, kernel_y: Any, kernel_x: Any, row: Any, dilation: Any) -> Any:
        """As `window_sums` for four rows, `below` bytes of the input apart."""
        a, b, c, d = splat(start), splat(start), splat(start), splat(start)
        for ky in range(kernel_y):
            for kx in range(kernel_x):
                place = source + ky * row + kx * dilation
                factor = splat(f32(weights)[ky * kernel_x + kx])
                a = fma(read(place), factor, a)
                b = fma(read(place + below), factor, b)
                c = fma(read(place + 2 * below), factor, c)
                d = fma(read(place + 3 * below), factor, d)
        return a, b, c, d

    return sums


four_rows, four_rows_apart = _four(load_single), _four(load_even)


def _four_squares(stride: int) -> Any:
    @inlined
    def three(line: Any) -> Any:
        low = load_single(line)
        if stride == 1:
            return low, load_single(line + 4), load_single(line + 8)
        high = load_single(line + 4 * LANES)
        return evens(low, high), odds(low, high), evens(load_single(line + 8), load_single(line + 8 + 4 * LANES))

    @inlined
    def window(start: Any, top: Any, middle: Any, bottom: Any, weights: Any) -> Any:
        w, total = f32(weights), splat(start)
        total = fma(top[2], splat(w[2]), fma(top[1], splat(w[1]), fma(top[0], splat(w[0]), total)))
        total = fma(middle[2], splat(w[5]), fma(middle[1], splat(w[4]), fma(middle[0], splat(w[3]), total)))
        return fma(bottom[2], splat(w[8]), fma(bottom[1], splat(w[7]), fma(bottom[0], splat(w[6]), total)))

    @inner
    def sums(source: Any, weights: Any, start: Any, row: Any) -> Any:
        """As `four_rows` for windows of 3 x 3, whose rows are read once for all that see them."""
        first, second, third = three(source), three(source + row), three(source + 2 * row)
        a = window(start, first, second, third, weights)
        fourth = three(source + 3 * row)
        if stride == 1:
            b = window(start, second, third, fourth, weights)
            fifth = three(source + 4 * row)
            c = window(start, third, fourth, fifth, weights)
            return a, b, c, window(start, fourth, fifth, three(source + 5 * row), weights)
        fifth = three(source + 4 * row)
        b = window(start, third, fourth, fifth, weights)
        sixth, seventh = three(source + 5 * row), three(source + 6 * row)
        c = window(start, fifth, sixth, seventh, weights)
        return a, b, c, window(start, seventh, three(source + 7 * row), three(source + 8 * row), weights)

    return sums


four_squares, four_squares_apart = _four_squares(1), _four_squares(2)


@inner
def _put(target: Any, count: Any, vector: Any, low: Any, high: Any) -> None:
    """Write the first `count` lanes, limited."""
    vector = select(vector < low, low, vector)
    vector = select(vector > high, high, vector)
    if count >= LANES:
        store_single(target, vector)
    else:
        store_some(target, vector, (1 << count) - 1)


@range_kernel
def convolved_by_channel(args: Any, part: Any, parts: Any) -> None:
    """One input channel for each output channel. Arguments as `problem_kernel` says, rows of a band in place of the slices."""
    x, w, y, bias, bias_row = args[0], args[1], args[2], args[3], args[4]
    images, groups, outputs, height, width = args[6], args[7], args[9], args[11], args[12]
    out_height, out_width, kernel_y, kernel_x = args[14], args[15], args[17], args[18]
    stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x = args[20], args[21], args[23], args[24], args[26], args[27]
    low, high, band = np.float32(number(args[28])), np.float32(number(args[29])), args[30]
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    wide = ((out_width + LANES - 1) // LANES * LANES - 1) * stride_x + (kernel_x - 1) * dilation_x + 1 + 2 * LANES
    most = (band - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
    scratch, zero = args[31] + part * 4 * (most * wide + LANES), np.float32(0)
    filled(scratch, most * wide, zero)
    square = kernel_y == kernel_x == 3 and dilation_y == dilation_x == 1 and stride_y == stride_x
    bands = (out_height + band - 1) // band
    first, last = share(images * groups * outputs * bands, part, parts)
    for unit in range(first, last):
        plane, begin = unit // bands, unit % bands * band
        rows, channel = min(band, out_height - begin), plane % (groups * outputs)
        needed = (rows - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
        copied(x + 4 * (plane // outputs) * height * width, height, width, begin * stride_y - pad_y, needed, pad_x, scratch, wide, zero)
        weights = w + 4 * channel * kernel_y * kernel_x
        start = f32(bias)[channel] if bias_row != 0 else np.float32(0)
        base = y + 4 * (plane * out_height + begin) * out_width
        down, step_y, step_x, row = 4 * stride_y * wide, 4 * dilation_y * wide, 4 * dilation_x, 0
        four = rows >= 4 and stride_x <= 2
        while row < rows:
            if four:
                row = min(row, rows - 4)
            for j in range(0, out_width, LANES):
                source, target = scratch + row * down + 4 * j * stride_x, base + 4 * (row * out_width + j)
                if not four:
                    _put(target, out_width - j, window_sums(source, stride_x, weights, start, kernel_y, kernel_x, step_y, step_x), low, high)
                    continue
                if square and stride_x == 1:
                    a, b, c, d = four_squares(source, weights, start, step_y)
                elif square:
                    a, b, c, d = four_squares_apart(source, weights, start, step_y)
                elif stride_x == 1:
                    a, b, c, d = four_rows(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                else:
                    a, b, c, d = four_rows_apart(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                _put(target, out_width - j, a, low, high)
                _put(target + 4 * out_width, out_width - j, b, low, high)
                _put(target + 8 * out_width, out_width - j, c, low, high)
                _put(target + 12 * out_width, out_width - j, d, low, high)
            row += 4 if four else 1
        if args[32] != 0:
            other = added + (base - y) if added != 0 else added
            finished(args[33], alpha, beta, base, 0, 1, rows * out_width, other, 0)


def by_channel(problem: Problem) -> Way | None:
    """The launch where each channel has outputs of its own, over one or two axes."""
    geometry = problem.geometry
    if problem.channels != 1 or problem.outputs > MANY or (*geometry[0:9:3], geometry[15]) != (1, 1, 1, 0):
        return None
    step, rows = problem.step, band_rows(geometry)
    parts = step.parts(problem.images * problem.groups * problem.outputs * -(-geometry[4] // rows), problem.work * 4)
    room = step.scratch(parts * 4 * band_room(geometry))

    def launch(finish: Finish, result: Buffer) -> Launch:
        return Launch(convolved_by_channel, problem.arguments(problem.x, problem.w, result, problem.bias, rows, room, finish), parts)

    return [], launch
