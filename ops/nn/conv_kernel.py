"""Native convolution of float32 over one or two axes: windows are packed into panels, which the kernels multiply."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import f32, number, share
from ..math.tile_kernel import PANEL, ROWS, column_of_tiles
from .conv import conv
from .window import window

F32 = np.dtype(np.float32)


@range_kernel
def convolved(args: Any, part: Any, parts: Any) -> None:
    """Panels of output positions for every image and group; when these are few, rows of output channels are parts as well."""
    x, w, y, bias, bias_row, zero = args[0], args[1], args[2], args[3], args[4], args[5]
    images, groups, channels, outputs, height, width = args[6], args[7], args[8], args[9], args[10], args[11]
    out_height, out_width, kernel_y, kernel_x = args[12], args[13], args[14], args[15]
    stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x = args[16], args[17], args[18], args[19], args[20], args[21]
    low, high, slices = np.float32(number(args[22])), np.float32(number(args[23])), args[24]
    depth = channels * kernel_y * kernel_x
    scratch = args[25] + part * (depth + ROWS) * 4 * PANEL
    packed = f32(scratch)
    positions = out_height * out_width
    count = (positions + PANEL - 1) // PANEL
    first, last = share(images * groups * count * slices, part, parts)
    before = -1
    for unit in range(first, last):
        place, piece = unit // slices, unit % slices
        panel, group, image = place % count, place // count % groups, place // count // groups
        start = panel * PANEL
        wide = min(PANEL, positions - start)
        if place != before:
            before = place
            source = f32(x + (image * groups + group) * channels * height * width * 4)
            column = 0
            while column < wide:
                row_y, first_x = (start + column) // out_width, (start + column) % out_width
                length = min(wide - column, out_width - first_x)
                for ky in range(kernel_y):
                    at_y = row_y * stride_y + ky * dilation_y - pad_y
                    for kx in range(kernel_x):
                        shift = kx * dilation_x - pad_x
                        least = max(0, (-shift + stride_x - 1) // stride_x - first_x)
                        most = min(length, (width - 1 - shift) // stride_x + 1 - first_x) if width > shift else 0
                        if at_y < 0 or at_y >= height or most <= least:
                            least, most = length, length
                        for channel in range(channels):
                            line = ((channel * kernel_y + ky) * kernel_x + kx) * PANEL + column
                            begin = (channel * height + at_y) * width + first_x * stride_x + shift
                            for j in range(least):
                                packed[line + j] = np.float32(0)
                            if stride_x == 1:
                                for j in range(least, most):
                                    packed[line + j] = source[begin + j]
                            else:
                                for j in range(least, most):
                                    packed[line + j] = source[begin + j * stride_x]
                            for j in range(most, length):
                                packed[line + j] = np.float32(0)
                column += length
            if wide < PANEL:
                for k in range(depth):
                    for j in range(wide, PANEL):
                        packed[k * PANEL + j] = np.float32(0)
        low_row, high_row = outputs * piece // slices, outputs * (piece + 1) // slices
        column_of_tiles(
            w + group * outputs * depth * 4, depth * 4, 4, scratch, depth,
            y + ((image * groups + group) * outputs * positions + start) * 4, positions * 4, low_row, high_row, wide,
            bias + group * outputs * bias_row, bias_row, zero, low, high, scratch + depth * 4 * PANEL,
        )


@range_kernel
def convolved_by_channel(args: Any, part: Any, parts: Any) -> None:
    """One input channel for each output channel: rows of the output, tap by tap. Arguments as for `convolved`."""
    x, w, y, bias, bias_row = f32(args[0]), f32(args[1]), f32(args[2]), f32(args[3]), args[4]
    images, groups, outputs, height, width = args[6], args[7], args[9], args[10], args[11]
    out_height, out_width, kernel_y, kernel_x = args[12], args[13], args[14], args[15]
    stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x = args[16], args[17], args[18], args[19], args[20], args[21]
    first, last = share(images * groups * outputs * out_height, part, parts)
    for row in range(first, last):
        plane, out_y = row // out_height, row % out_height
        channel = plane % (groups * outputs)
        base = plane // outputs * height * width
        line = row * out_width
        start = bias[channel] if bias_row != 0 else np.float32(0)
        for j in range(out_width):
            y[line + j] = start
        for ky in range(kernel_y):
            at_y = out_y * stride_y + ky * dilation_y - pad_y
            if at_y < 0 or at_y >= height:
                continue
            for kx in range(kernel_x):
                shift = kx * dilation_x - pad_x
                least = max(0, (-shift + stride_x - 1) // stride_x)
                most = min(out_width, (width - 1 - shift) // stride_x + 1) if width > shift else 0
                factor = w[(channel * kernel_y + ky) * kernel_x + kx]
                begin = base + at_y * width + shift
                if stride_x == 1:
                    for j in range(least, most):
                        y[line + j] += factor * x[begin + j]
                else:
                    for j in range(least, most):
                        y[line + j] += factor * x[begin + j * stride_x]


@native(conv)
def plan_conv(step: Step) -> Planned:
    """Three spatial axes and more are left to NumPy."""
    x, w = step.inputs[:2]
    b = step.inputs[2] if len(step.inputs) > 2 else None
    if x is None or w is None or x.dtype != F32 or len(x.shape) not in (3, 4):
        return None
    attributes = step.attributes
    spatial = len(x.shape) - 2
    settings = (attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = window("Conv", spatial, w.shape[2:], *settings).axes(x.shape[2:])
    groups = attributes["group"]
    images, channels, outputs = x.shape[0], x.shape[1] // groups, w.shape[0] // groups
    if w.shape[1] != channels:
        return None
    y = step.output()
    lines = [(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes]
    if spatial == 1:
        lines.insert(0, (1, 1, 1, 1, 1, 0))
    if all(kernel == 1 and stride == 1 and begin == 0 and size == out for size, out, kernel, stride, _, begin in lines):
        flat = math.prod(x.shape[2:])
        lines = [(1, 1, 1, 1, 1, 0), (flat, flat, 1, 1, 1, 0)]
    sizes, outs, kernels, strides, dilations, pads = (tuple(column) for column in zip(*lines, strict=True))
    depth = channels * math.prod(kernels)
    panels = images * groups * -(-math.prod(outs) // PANEL)
    slices = 1 if panels >= 4 * step.threads else max(1, min(outputs // ROWS, -(-4 * step.threads // panels)))
    parts = step.parts(panels * slices, y.count * depth / 16)
    zero = step.held(np.zeros(PANEL, np.float32))
    scratch = step.scratch(parts * (depth + ROWS) * 4 * PANEL)
    by_channel = channels == 1
    if by_channel:
        parts = step.parts(images * groups * outputs * outs[0], y.count * depth / 2)
    return Launch(
        convolved_by_channel if by_channel else convolved,
        (
            x, w, y, b if b is not None else zero, 4 if b is not None else 0, zero, images, groups, channels, outputs, *sizes, *outs, *kernels,
            *strides, *dilations, *pads, -math.inf, math.inf, slices, scratch,
        ),
        parts,
    )
