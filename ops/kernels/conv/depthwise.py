"""Depthwise convolution: a padded band of each plane is copied once, then 16 outputs at a time are summed in
registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.jit.address import f32, share
from ....runtime.jit.range_kernel import inlined, inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ....runtime.simd.memory import evens, fma, load_even, load_f32, load_masked, odds, store_f32, store_masked
from ....runtime.simd.vector import LANES, load, select, splat, stack_array
from ..gemm.epilogue import Epilogue, apply_epilogue
from .problem import Convolution, ConvPlan, Problem

BAND = 16384
"""Maximum number of input elements of a band."""
MAX_WINDOWS = 4
"""Outputs per channel from which a matrix product is faster."""


def padded_width(geometry: Sequence[int]) -> int:
    """Elements of a padded row, with stack_array for vectors that start in it."""
    out, kernel, stride, dilation = (geometry[index] for index in (5, 8, 11, 14))
    return (-(-out // LANES) * LANES - 1) * stride + (kernel - 1) * dilation + 1 + 2 * LANES


def band_rows(geometry: Sequence[int]) -> int:
    """Rows of the output in a band."""
    return max(1, min(geometry[4], BAND // (padded_width(geometry) * geometry[10])))


def band_elements(geometry: Sequence[int]) -> int:
    """Elements of a band of the input."""
    kernel, stride, dilation = (geometry[index] for index in (7, 10, 13))
    return ((band_rows(geometry) - 1) * stride + (kernel - 1) * dilation + 1) * padded_width(geometry) + LANES


@inner
def fill(target: Any, count: Any, value: Any) -> None:
    """Fill `count` elements, and up to 15 after them."""
    vector = splat(value)
    for j in range(0, count, LANES):
        store_f32(target + 4 * j, vector)


@inner
def copy_rows(
    source: Any, height: Any, width: Any, first: Any, row_step: Any, rows: Any, pad: Any, target: Any, wide: Any
) -> None:
    """Copy rows of a plane, `row_step` rows from each other, from `first` on, `pad` elements after the row starts of a
    target of zeros; rows outside the plane are zeros too. The end of a row is stored as a full vector, zeros of which
    reach into the rows after it: these are copied later."""
    held = max(0, min(width, wide - pad))
    whole = held - held % LANES
    rest = (1 << (held - whole)) - 1
    zeros = splat(np.float32(0))
    for index in range(rows):
        at, line = first + row_step * index, target + 4 * (index * wide + pad)
        row, end = source + 4 * at * width, zeros
        if at < 0 or at >= height:
            for j in range(0, whole, LANES):
                store_f32(line + 4 * j, zeros)
        else:
            for j in range(0, whole, LANES):
                store_f32(line + 4 * j, load_f32(row + 4 * j))
            end = load_masked(row + 4 * whole, rest)
        if (rows - index) * wide >= pad + whole + LANES:
            store_f32(line + 4 * whole, end)
        else:
            store_masked(line + 4 * whole, end, rest)


@inner
def window_sums(
    source: Any, step: Any, weights: Any, start: Any, kernel_y: Any, kernel_x: Any, row: Any, dilation: Any
) -> Any:
    """Sum 16 outputs, `step` input elements apart."""
    spare = stack_array(np.float32, 1)
    total = splat(start)
    for ky in range(kernel_y):
        for kx in range(kernel_x):
            place = source + ky * row + kx * dilation
            factor = splat(f32(weights)[ky * kernel_x + kx])
            if step == 1:
                total = fma(load_f32(place), factor, total)
            elif step == 2:
                total = fma(load_even(place), factor, total)
            else:
                for lane in range(LANES):
                    spare[lane] = f32(place)[lane * step]
                total = fma(load(spare, 0), factor, total)
    return total


def _four(read: Any) -> Any:
    @inner
    def sums(
        source: Any, below: Any, weights: Any, start: Any, kernel_y: Any, kernel_x: Any, row: Any, dilation: Any
    ) -> Any:
        """Like `window_sums` for four rows, `below` input bytes apart."""
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


four_rows, four_rows_apart = _four(load_f32), _four(load_even)


def _four_squares(stride: int) -> Any:
    @inlined
    def three(line: Any) -> Any:
        low = load_f32(line)
        if stride == 1:
            return low, load_f32(line + 4), load_f32(line + 8)
        high = load_f32(line + 4 * LANES)
        return evens(low, high), odds(low, high), evens(load_f32(line + 8), load_f32(line + 8 + 4 * LANES))

    @inlined
    def window(start: Any, top: Any, middle: Any, bottom: Any, weights: Any) -> Any:
        w, total = f32(weights), splat(start)
        total = fma(top[2], splat(w[2]), fma(top[1], splat(w[1]), fma(top[0], splat(w[0]), total)))
        total = fma(middle[2], splat(w[5]), fma(middle[1], splat(w[4]), fma(middle[0], splat(w[3]), total)))
        return fma(bottom[2], splat(w[8]), fma(bottom[1], splat(w[7]), fma(bottom[0], splat(w[6]), total)))

    @inner
    def sums(source: Any, weights: Any, start: Any, row: Any) -> Any:
        """Like `four_rows` for 3 x 3 windows; each input row is read once."""
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
def _store(target: Any, count: Any, room: Any, vector: Any, low: Any, high: Any) -> None:
    """Clamp and store the first `count` lanes, or all where there is `room` for them: what they overwrite is stored
    later."""
    vector = select(vector < low, low, vector)
    vector = select(vector > high, high, vector)
    if room >= LANES:
        store_f32(target, vector)
    else:
        store_masked(target, vector, (1 << count) - 1)


@range_kernel
def depthwise(conv: Convolution, part: int, parts: int) -> None:
    """Depthwise convolution; slices are rows of a band."""
    x, w, y, bias, bias_row = conv.source, conv.weights, conv.target, conv.bias, conv.bias_step
    images, groups, outputs, height, width = conv.images, conv.groups, conv.outputs, conv.height, conv.width
    out_height, out_width, kernel_y, kernel_x = conv.out_height, conv.out_width, conv.kernel_y, conv.kernel_x
    stride_y, stride_x, dilation_y, dilation_x = conv.stride_y, conv.stride_x, conv.dilation_y, conv.dilation_x
    pad_y, pad_x = conv.pad_y, conv.pad_x
    low, high, band = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high), conv.slices
    wide = ((out_width + LANES - 1) // LANES * LANES - 1) * stride_x + (kernel_x - 1) * dilation_x + 1 + 2 * LANES
    most = (band - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
    scratch, zero = conv.scratch + part * 4 * (most * wide + LANES), np.float32(0)
    fill(scratch, most * wide, zero)
    square = kernel_y == kernel_x == 3 and dilation_y == dilation_x == 1 and stride_y == stride_x
    bands = (out_height + band - 1) // band
    first, last = share(images * groups * outputs * bands, part, parts)
    for unit in range(first, last):
        plane, begin = unit // bands, unit % bands * band
        rows, channel = min(band, out_height - begin), plane % (groups * outputs)
        needed = (rows - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
        copy_rows(
            x + 4 * (plane // outputs) * height * width,
            height,
            width,
            begin * stride_y - pad_y,
            1,
            needed,
            pad_x,
            scratch,
            wide,
        )
        weights = w + 4 * channel * kernel_y * kernel_x
        start = f32(bias)[channel] if bias_row != 0 else np.float32(0)
        base = y + 4 * (plane * out_height + begin) * out_width
        down, step_y, step_x, row = 4 * stride_y * wide, 4 * dilation_y * wide, 4 * dilation_x, 0
        four = rows >= 4 and stride_x <= 2
        while row < rows:
            if four:
                row = min(row, rows - 4)
            for j in range((out_width - 1) // LANES * LANES, -1, -LANES):
                source, target = scratch + row * down + 4 * j * stride_x, base + 4 * (row * out_width + j)
                count, room = out_width - j, (rows - row) * out_width - j
                if not four:
                    total = window_sums(source, stride_x, weights, start, kernel_y, kernel_x, step_y, step_x)
                    _store(target, count, room, total, low, high)
                    continue
                if square and stride_x == 1:
                    a, b, c, d = four_squares(source, weights, start, step_y)
                elif square:
                    a, b, c, d = four_squares_apart(source, weights, start, step_y)
                elif stride_x == 1:
                    a, b, c, d = four_rows(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                else:
                    a, b, c, d = four_rows_apart(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                _store(target, count, room, a, low, high)
                _store(target + 4 * out_width, count, room - out_width, b, low, high)
                _store(target + 8 * out_width, count, room - 2 * out_width, c, low, high)
                _store(target + 12 * out_width, count, room - 3 * out_width, d, low, high)
            row += 4 if four else 1
        apply_epilogue(conv.epilogue, y, base - y, 0, 1, rows * out_width)


def plan_depthwise(problem: Problem) -> ConvPlan | None:
    """Launch of a depthwise convolution over one or two axes, None for others."""
    geometry = problem.geometry
    if problem.channels != 1 or problem.outputs > MAX_WINDOWS or not problem.planar:
        return None
    step, rows = problem.step, band_rows(geometry)
    parts = step.parts(problem.images * problem.groups * problem.outputs * -(-geometry[4] // rows), problem.work * 4)
    stack_array = step.scratch(parts * 4 * band_elements(geometry))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            depthwise,
            parts,
            conv=problem.arguments(problem.x, problem.w, result, problem.bias, rows, stack_array, epilogue),
        )

    return [], launch
