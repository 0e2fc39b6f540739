"""Native convolution of float32 over one to three axes: windows are packed into panels, which the kernels multiply.

Arguments of the kernels, where three numbers are for the axes depth, height and width: addresses of input, kernels and output; of the biases,
bytes from one to the next, and zeros; images, groups, channels and outputs of a group; sizes, lengths of the output, of the kernel, strides,
dilations, padding before (18 numbers); lower and upper limit; slices of the channels, scratch; `Finish.arguments`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, number, share
from ..math.finish_kernel import Finish, finished, finishing
from ..math.lane_kernel import evens, load_some, store_some
from ..math.tile_kernel import PANEL, ROWS, column_of_tiles
from .channel_kernel import band_room, band_rows, convolved_by_channel
from .conv import conv
from .few_kernel import ENOUGH, FEW, convolved_few, padded_bias, weight_panels
from .window import Axis, window
from .winograd_kernel import EDGE, convolved_in_squares, pays, rows_together, scratch_bytes, transformed

F32 = np.dtype(np.float32)
MANY = 4
"""Outputs of one channel from which a product of matrices is faster."""
POINT = Axis(size=1, kernel=1, stride=1, dilation=1, begin=0, end=0, out=1)


@inner
def _bits(first: Any, last: Any) -> Any:
    """Bits from `first` to before `last`, which is at most 63."""
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _line(source: Any, begin: Any, stride: Any, target: Any, least: Any, most: Any, length: Any) -> None:
    """`length` elements from a row, zeros outside of ``[least, most)``."""
    written = _bits(0, length)
    if stride == 1:
        valid = _bits(least, most)
        for half in range(0, length, 16):
            store_some(target + 4 * half, load_some(source + 4 * (begin + half), valid >> half), written >> half)
    elif stride == 2:
        valid = _bits(2 * least, 2 * most - 1)
        for half in range(0, length, 16):
            place = source + 4 * (begin + 2 * half)
            pairs = evens(load_some(place, valid >> (2 * half)), load_some(place + 64, valid >> (2 * half + 16)))
            store_some(target + 4 * half, pairs, written >> half)
    else:
        row, packed = f32(source), f32(target)
        for j in range(length):
            packed[j] = row[begin + j * stride] if least <= j < most else np.float32(0)


@inner
def _packed(args: Any, source: Any, start: Any, wide: Any, panel: Any) -> None:
    """`wide` windows from position `start` on, one in each column of a panel."""
    channels, depth, height, width = args[8], args[10], args[11], args[12]
    out_height, out_width, kernel_z, kernel_y, kernel_x = args[14], args[15], args[16], args[17], args[18]
    stride_x, dilation_x, pad_x = args[21], args[24], args[27]
    column = 0
    while column < wide:
        row, first_x = (start + column) // out_width, (start + column) % out_width
        row_z, row_y = row // out_height, row % out_height
        length = min(wide - column, out_width - first_x)
        for tap in range(kernel_z * kernel_y):
            at_z = row_z * args[19] + tap // kernel_y * args[22] - args[25]
            at_y = row_y * args[20] + tap % kernel_y * args[23] - args[26]
            inside = at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
            for kx in range(kernel_x):
                shift = kx * dilation_x - pad_x
                least = max(0, (-shift + stride_x - 1) // stride_x - first_x)
                most = min(length, (width - 1 - shift) // stride_x + 1 - first_x) if width > shift else 0
                if not inside or most <= least:
                    least, most = length, length
                begin = (at_z * height + at_y) * width + first_x * stride_x + shift
                target = panel + 4 * ((tap * kernel_x + kx) * PANEL + column)
                for channel in range(channels):
                    place = source + 4 * channel * depth * height * width
                    _line(place, begin, stride_x, target + 4 * channel * kernel_z * kernel_y * kernel_x * PANEL, least, most, length)
        column += length
    if wide < PANEL:
        for k in range(channels * kernel_z * kernel_y * kernel_x):
            for j in range(wide, PANEL):
                f32(panel)[k * PANEL + j] = np.float32(0)


@range_kernel
def convolved(args: Any, part: Any, parts: Any) -> None:
    """Panels of output positions for every image and group; when these are few, rows of output channels are parts as well."""
    x, w, y, bias, bias_row, zero = args[0], args[1], args[2], args[3], args[4], args[5]
    images, groups, channels, outputs = args[6], args[7], args[8], args[9]
    low, high, slices = np.float32(number(args[28])), np.float32(number(args[29])), args[30]
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    depth = channels * args[16] * args[17] * args[18]
    scratch = args[31] + part * (depth + ROWS) * 4 * PANEL
    positions = args[13] * args[14] * args[15]
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
            _packed(args, x + (image * groups + group) * channels * args[10] * args[11] * args[12] * 4, start, wide, scratch)
        low_row, high_row = outputs * piece // slices, outputs * (piece + 1) // slices
        base = ((image * groups + group) * outputs * positions + start) * 4
        column_of_tiles(
            w + group * outputs * depth * 4, depth * 4, 4, scratch, depth, y + base, positions * 4, low_row, high_row, wide,
            bias + group * outputs * bias_row, bias_row, zero, low, high, scratch + depth * 4 * PANEL,
        )
        if args[32] != 0:
            base += low_row * positions * 4
            other = added + base if added != 0 else added
            finished(args[33], alpha, beta, y + base, positions * 4, high_row - low_row, wide, other, positions * 4)


def plan_window(step: Step, x: Buffer, w: Buffer) -> list[Axis] | None:
    """The axes of a convolution, three of them; those that slide over nothing are one. None where lengths do not fit."""
    spatial = len(x.shape) - 2
    settings = (step.attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = list(window(step.node.op.name, spatial, w.shape[2:], *settings).axes(x.shape[2:]))
    if all(axis.kernel == 1 and axis.stride == 1 and axis.begin == 0 and axis.size == axis.out for axis in axes):
        flat = math.prod(x.shape[2:])
        return [POINT, POINT, replace(POINT, size=flat, out=flat)]
    axes = [axis for axis in axes if replace(axis, dilation=1) != POINT]
    return [POINT] * (3 - len(axes)) + axes


def _slices(step: Step, panels: int, outputs: int) -> int:
    """Into how many slices output channels are cut, so that there are parts for all threads."""
    return 1 if panels >= 4 * step.threads else max(1, min(outputs // ROWS, -(-4 * step.threads // panels)))


def planes_product(step: Step, x: Buffer, w: Buffer, y: Buffer, lengths: tuple[int, int, int, int, int]) -> Launch:
    """Products of constant matrices with planes: images, groups, channels and outputs of a group, positions."""
    images, groups, channels, outputs, positions = lengths
    panels = images * groups * -(-positions // PANEL)
    slices = _slices(step, panels, outputs)
    parts = step.parts(panels * slices, images * groups * outputs * positions * channels / 16)
    zero = step.held(np.zeros(PANEL, np.float32))
    line = (1, 1, positions, 1, 1, positions, *(1,) * 9, 0, 0, 0)
    scratch = step.scratch(parts * (channels + ROWS) * 4 * PANEL)
    finish = Finish()
    arguments = (x, w, y, zero, 0, zero, images, groups, channels, outputs, *line, *finish.limits, slices, scratch, *finish.arguments(0))
    return Launch(convolved, arguments, parts)


@native(conv)
def plan_conv(step: Step) -> Planned:
    """Four spatial axes and more are left to NumPy."""
    x, w = step.inputs[:2]
    b = step.inputs[2] if len(step.inputs) > 2 else None
    if x is None or w is None or x.dtype != F32 or len(x.shape) not in (3, 4, 5) or w.shape[1] * step.attributes["group"] != x.shape[1]:
        return None
    axes = plan_window(step, x, w)
    if axes is None:
        return None
    groups = step.attributes["group"]
    images, channels, outputs = x.shape[0], w.shape[1], w.shape[0] // groups
    y = step.output()
    columns = zip(*((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True)
    geometry = [length for column in columns for length in column]
    outs, depth = geometry[3:6], channels * math.prod(geometry[6:9])
    by_channel = channels == 1 and axes[0] is POINT and outputs <= MANY
    panels = images * groups * -(-math.prod(outs) // PANEL)
    slices = _slices(step, panels, outputs)
    parts = step.parts(panels * slices, y.count * depth / 16)
    zero = step.held(np.zeros(PANEL, np.float32))
    few = math.prod(outs) <= FEW and outputs >= ENOUGH and step.constant(1) is not None and (b is None or step.constant(2) is not None)
    kernel, weights, bias, bias_step = convolved, w, b if b is not None else zero, 4 if b is not None else 0
    if few:
        kernel, weights = convolved_few, step.packed(1, ("few", groups), lambda array: weight_panels(array, groups))
        bias = step.held(padded_bias(step.constant(2), groups, outputs))
        parts = step.parts(images * groups * -(-outputs // PANEL), y.count * depth / 8)
        scratch = step.scratch(parts * 4 * math.prod(outs) * (depth + PANEL))
    elif pays(w, geometry, groups) and step.constant(1) is not None:
        kernel, weights, slices = convolved_in_squares, step.packed(1, "squares", transformed), rows_together(outs[2])
        parts = step.parts(images * -(-outs[1] // (EDGE * slices)), y.count * depth / 40)
        scratch = step.scratch(parts * scratch_bytes(channels))
    elif by_channel:
        kernel, slices = convolved_by_channel, band_rows(geometry)
        bands = images * groups * outputs * -(-outs[1] // slices)
        parts = step.parts(bands, y.count * depth / 4)
        scratch = step.scratch(parts * 4 * band_room(geometry))
    else:
        scratch = step.scratch(parts * (depth + ROWS) * 4 * PANEL)

    def launch(finish: Finish, result: Buffer) -> Launch:
        arguments = (
            x, weights, result, bias, bias_step, zero, images, groups, channels, outputs, *geometry, *finish.limits, slices, scratch,
            *finish.arguments(0),
        )
        return Launch(kernel, arguments, parts)

    return finishing(launch, y, 0)
