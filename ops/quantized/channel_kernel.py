"""Convolution of bytes, channels each for itself: differences from the zero points as f32, in which all sums are whole numbers below 2**24."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.native import f32, i8, i32, share, u8
from ...runtime.simd import LANES
from ..math.lane_kernel import store_single
from ..nn.channel_kernel import four_rows, four_rows_apart, four_squares, four_squares_apart, window_sums
from .result_kernel import INTEGERS, SIGNED_BYTES, byte_at, rounded

MOST_TAPS = 250
"""Products of differences are below 2**16, so that sums of so many are exact."""


@inner
def _copied(source: Any, signed: Any, zero: Any, height: Any, width: Any, first: Any, rows: Any, pad: Any, target: Any, wide: Any) -> None:
    """Rows of a plane from `first` on as differences from the zero point, zeros around them."""
    for index in range(rows):
        at, line = first + index, f32(target + 4 * index * wide)
        begin, end = min(pad, wide), min(pad + width, wide)
        if at < 0 or at >= height:
            begin, end = wide, wide
        for j in range(begin):
            line[j] = np.float32(0)
        row = source + at * width
        if signed != 0:
            for j in range(begin, end):
                line[j] = np.float32(np.int32(i8(row)[j - begin]) - zero)
        else:
            for j in range(begin, end):
                line[j] = np.float32(np.int32(u8(row)[j - begin]) - zero)
        for j in range(end, wide):
            line[j] = np.float32(0)


@inner
def _written(sums: Any, count: Any, form: Any, bias: Any, factor: Any, zero: Any, y: Any) -> None:
    """A row of whole numbers as results."""
    line = f32(sums)
    if form == INTEGERS:
        for j in range(count):
            i32(y)[j] = np.int32(line[j])
    elif form == SIGNED_BYTES:
        for j in range(count):
            i8(y)[j] = rounded(np.float32(np.int32(line[j]) + bias) * factor, zero, np.float32(-128), np.float32(127))
    else:
        for j in range(count):
            u8(y)[j] = rounded(np.float32(np.int32(line[j]) + bias) * factor, zero, np.float32(0), np.float32(255))


@range_kernel
def convolved_bytes_by_channel(args: Any, part: Any, parts: Any) -> None:
    """As `window_kernel.convolved_bytes`, kernels as f32 differences from their zero points, rows of a band in place of the slices."""
    x, w, y, bias = args[0], args[1], args[2], args[3]
    images, groups, outputs, height, width = args[6], args[7], args[9], args[11], args[12]
    out_height, out_width, kernel_y, kernel_x = args[14], args[15], args[17], args[18]
    stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x = args[20], args[21], args[23], args[24], args[26], args[27]
    band, signed, form = args[30], args[32], args[33]
    itemsize = 4 if form == INTEGERS else 1
    long = (out_width + LANES - 1) // LANES * LANES
    wide = (long - 1) * stride_x + (kernel_x - 1) * dilation_x + 1 + 2 * LANES
    most = (band - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
    scratch = args[31] + part * 4 * (most * wide + 4 * long)
    sums = scratch + 4 * most * wide
    x_zero = byte_at(args[34], signed)
    y_zero = np.float32(byte_at(args[40], 1 if form == SIGNED_BYTES else 0))
    square = kernel_y == kernel_x == 3 and dilation_y == dilation_x == 1 and stride_y == stride_x
    bands = (out_height + band - 1) // band
    down, step_y, step_x = 4 * stride_y * wide, 4 * dilation_y * wide, 4 * dilation_x
    first, last = share(images * groups * outputs * bands, part, parts)
    for unit in range(first, last):
        plane, begin = unit // bands, unit % bands * band
        rows, channel = min(band, out_height - begin), plane % (groups * outputs)
        needed = (rows - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
        _copied(x + plane // outputs * height * width, signed, x_zero, height, width, begin * stride_y - pad_y, needed, pad_x, scratch, wide)
        weights = w + 4 * channel * kernel_y * kernel_x
        start = np.float32(0)
        more = i32(bias)[channel] if bias != 0 else np.int32(0)
        factor = f32(args[37])[0] * f32(args[38])[channel] / f32(args[39])[0]
        row, count = 0, 4 if rows >= 4 and stride_x <= 2 else 1
        while row < rows:
            row = min(row, rows - count)
            for j in range(0, out_width, LANES):
                source, target = scratch + row * down + 4 * j * stride_x, sums + 4 * j
                if count == 1:
                    store_single(target, window_sums(source, stride_x, weights, start, kernel_y, kernel_x, step_y, step_x))
                    continue
                if square and stride_x == 1:
                    a, b, c, d = four_squares(source, weights, start, step_y)
                elif square:
                    a, b, c, d = four_squares_apart(source, weights, start, step_y)
                elif stride_x == 1:
                    a, b, c, d = four_rows(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                else:
                    a, b, c, d = four_rows_apart(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                store_single(target, a)
                store_single(target + 4 * long, b)
                store_single(target + 8 * long, c)
                store_single(target + 12 * long, d)
            for index in range(count):
                out = y + ((plane * out_height + begin + row + index) * out_width) * itemsize
                _written(sums + 4 * long * index, out_width, form, more, factor, y_zero, out)
            row += count
