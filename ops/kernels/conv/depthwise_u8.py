"""Depthwise convolution of bytes, computed in f32, where all sums are integers below 2**24."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, i8, i32, share, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.simd.memory import store_f32
from ....runtime.simd.vector import LANES
from ..gemm.requantize import INTEGERS, SIGNED_BYTES, load_zero_point, round_to_byte
from .depthwise import four_rows, four_rows_apart, four_squares, four_squares_apart, window_sums

MAX_TAPS = 250
"""Maximum number of taps: products are below 2**16, and f32 sums must be exact."""


@inner
def _copy_rows(
    source: Any,
    signed: Any,
    zero: Any,
    height: Any,
    width: Any,
    first: Any,
    rows: Any,
    pad: Any,
    target: Any,
    wide: Any,
) -> None:
    """Copy rows of a plane from `first` on minus the zero point, zero-padded."""
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
def _requantize_row(sums: Any, count: Any, form: Any, bias: Any, factor: Any, zero: Any, y: Any) -> None:
    """Requantize and store a row of sums."""
    line = f32(sums)
    if form == INTEGERS:
        for j in range(count):
            i32(y)[j] = np.int32(line[j])
    elif form == SIGNED_BYTES:
        for j in range(count):
            i8(y)[j] = round_to_byte(
                np.float32(np.int32(line[j]) + bias) * factor, zero, np.float32(-128), np.float32(127)
            )
    else:
        for j in range(count):
            u8(y)[j] = round_to_byte(
                np.float32(np.int32(line[j]) + bias) * factor, zero, np.float32(0), np.float32(255)
            )


class ByteConvolution(NamedTuple):
    """Arguments that the byte convolution kernels share; like `Convolution`.

    Attributes:
        signed: whether bytes of the input are.
        form: of the results.
        table: of what bytes of the results become, 0 for none.
    """

    source: Address
    weights: Address
    target: Address
    images: int
    groups: int
    channels: int
    outputs: int
    depth: int
    height: int
    width: int
    out_depth: int
    out_height: int
    out_width: int
    kernel_z: int
    kernel_y: int
    kernel_x: int
    stride_z: int
    stride_y: int
    stride_x: int
    dilation_z: int
    dilation_y: int
    dilation_x: int
    pad_z: int
    pad_y: int
    pad_x: int
    slices: int
    scratch: Address
    signed: int
    form: int
    x_zero: Address
    y_zero: Address
    table: Address


@range_kernel
def depthwise_u8(
    conv: ByteConvolution, bias: Address, x_scale: Address, scales: Address, y_scale: Address, part: int, parts: int
) -> None:
    """Depthwise convolution of bytes; kernels are f32 differences from their zero points, slices are rows of a band."""
    x, w, y = conv.source, conv.weights, conv.target
    images, groups, outputs, height, width = conv.images, conv.groups, conv.outputs, conv.height, conv.width
    out_height, out_width, kernel_y, kernel_x = conv.out_height, conv.out_width, conv.kernel_y, conv.kernel_x
    stride_y, stride_x, dilation_y, dilation_x = conv.stride_y, conv.stride_x, conv.dilation_y, conv.dilation_x
    pad_y, pad_x = conv.pad_y, conv.pad_x
    band, signed, form = conv.slices, conv.signed, conv.form
    itemsize = 4 if form == INTEGERS else 1
    long = (out_width + LANES - 1) // LANES * LANES
    wide = (long - 1) * stride_x + (kernel_x - 1) * dilation_x + 1 + 2 * LANES
    most = (band - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
    scratch = conv.scratch + part * 4 * (most * wide + 4 * long)
    sums = scratch + 4 * most * wide
    x_zero = load_zero_point(conv.x_zero, signed)
    y_zero = np.float32(load_zero_point(conv.y_zero, 1 if form == SIGNED_BYTES else 0))
    square = kernel_y == kernel_x == 3 and dilation_y == dilation_x == 1 and stride_y == stride_x
    bands = (out_height + band - 1) // band
    down, step_y, step_x = 4 * stride_y * wide, 4 * dilation_y * wide, 4 * dilation_x
    first, last = share(images * groups * outputs * bands, part, parts)
    for unit in range(first, last):
        plane, begin = unit // bands, unit % bands * band
        rows, channel = min(band, out_height - begin), plane % (groups * outputs)
        needed = (rows - 1) * stride_y + (kernel_y - 1) * dilation_y + 1
        _copy_rows(
            x + plane // outputs * height * width,
            signed,
            x_zero,
            height,
            width,
            begin * stride_y - pad_y,
            needed,
            pad_x,
            scratch,
            wide,
        )
        weights = w + 4 * channel * kernel_y * kernel_x
        start = np.float32(0)
        more = i32(bias)[channel] if bias != 0 else np.int32(0)
        factor = f32(x_scale)[0] * f32(scales)[channel] / f32(y_scale)[0]
        row, count = 0, 4 if rows >= 4 and stride_x <= 2 else 1
        while row < rows:
            row = min(row, rows - count)
            for j in range(0, out_width, LANES):
                source, target = scratch + row * down + 4 * j * stride_x, sums + 4 * j
                if count == 1:
                    store_f32(target, window_sums(source, stride_x, weights, start, kernel_y, kernel_x, step_y, step_x))
                    continue
                if square and stride_x == 1:
                    a, b, c, d = four_squares(source, weights, start, step_y)
                elif square:
                    a, b, c, d = four_squares_apart(source, weights, start, step_y)
                elif stride_x == 1:
                    a, b, c, d = four_rows(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                else:
                    a, b, c, d = four_rows_apart(source, down, weights, start, kernel_y, kernel_x, step_y, step_x)
                store_f32(target, a)
                store_f32(target + 4 * long, b)
                store_f32(target + 8 * long, c)
                store_f32(target + 12 * long, d)
            for index in range(count):
                out = y + ((plane * out_height + begin + row + index) * out_width) * itemsize
                _requantize_row(sums + 4 * long * index, out_width, form, more, factor, y_zero, out)
            row += count
