"""Native ConvInteger and QLinearConv with constant kernels: four channels of a window stand together in panels of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i32, share, u8, u32
from ...runtime.simd import LANES
from ..nn.channel_kernel import band_room, band_rows
from ..nn.problem_kernel import POINT, plan_window
from ..nn.window import Axis
from .byte_kernel import MIDDLE, PANEL, byte_rows, column_of_byte_tiles, column_of_plain_byte_tiles
from .channel_kernel import MOST_TAPS, convolved_bytes_by_channel
from .conv import conv_integer, qlinear_conv
from .result_kernel import BYTES, INTEGERS, SIGNED_BYTES, byte_at, results

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


@inner
def _fours(planes: Any, plane: Any, left: Any, begin: Any, stride: Any, target: Any, least: Any, most: Any, length: Any, fill: Any) -> None:
    """One line of a panel: `length` windows of four channels (of which `left` are there), `fill` outside of ``[least, most)``."""
    line = u32(target)
    if most > least and left >= 4:
        a, b, c, d = u8(planes), u8(planes + plane), u8(planes + 2 * plane), u8(planes + 3 * plane)
        if stride == 1:
            for j in range(least, most):
                at = begin + j
                line[j] = np.uint32(a[at]) | np.uint32(b[at]) << np.uint32(8) | np.uint32(c[at]) << np.uint32(16) | np.uint32(d[at]) << np.uint32(24)
        else:
            for j in range(least, most):
                at = begin + j * stride
                line[j] = np.uint32(a[at]) | np.uint32(b[at]) << np.uint32(8) | np.uint32(c[at]) << np.uint32(16) | np.uint32(d[at]) << np.uint32(24)
    else:
        for j in range(least, most):
            word = np.uint32(0)
            for channel in range(min(left, 4)):
                word |= np.uint32(u8(planes + channel * plane)[begin + j * stride]) << np.uint32(8 * channel)
            line[j] = word
    for j in range(least):
        line[j] = fill
    for j in range(most, length):
        line[j] = fill


@inner
def _packed(args: Any, source: Any, start: Any, wide: Any, panel: Any, fill: Any, turn: Any) -> None:
    """`wide` windows from position `start` on as a panel [taps, channels / 4, PANEL, 4]; bytes are turned to unsigned ones."""
    channels, depth, height, width = args[8], args[10], args[11], args[12]
    out_height, out_width, kernel_z, kernel_y, kernel_x = args[14], args[15], args[16], args[17], args[18]
    stride_x, dilation_x, pad_x = args[21], args[24], args[27]
    fours = (channels + 3) // 4
    plane = depth * height * width
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
                for four in range(fours):
                    left = channels - 4 * four
                    kept = np.uint32(0xFFFFFFFF) if left >= 4 else np.uint32((1 << (8 * left)) - 1)
                    target = panel + 4 * (((tap * kernel_x + kx) * fours + four) * PANEL + column)
                    _fours(source + 4 * four * plane, plane, left, begin, stride_x, target, least, most, length, fill & kept)
        column += length
    line = u32(panel)
    for k in range(kernel_z * kernel_y * kernel_x * fours):
        for j in range(wide, PANEL):
            line[k * PANEL + j] = np.uint32(0)
    if turn != 0:
        for k in range(kernel_z * kernel_y * kernel_x * fours):
            left = channels - 4 * (k % fours)
            mask = np.uint32(0x80808080) if left >= 4 else np.uint32(0x80808080) & np.uint32((1 << (8 * left)) - 1)
            for j in range(wide):
                line[k * PANEL + j] ^= mask


@inner
def _column_terms(panel: Any, fours: Any, zero: Any, depth: Any, terms: Any) -> None:
    """Sums of the columns of a panel, less the zero point for each of `depth` elements."""
    line, made = u8(panel), i32(terms)
    for j in range(PANEL):
        total = -zero * np.int32(depth)
        for k in range(fours):
            for byte in range(4):
                total += np.int32(line[4 * (k * PANEL + j) + byte])
        made[j] = total


def _convolved(column: Any) -> Any:
    @range_kernel
    def convolved_bytes(args: Any, part: Any, parts: Any) -> None:
        """As `conv_kernel.convolved`, of rows of signed bytes; results as `result_kernel` says."""
        images, groups, channels, outputs = args[6], args[7], args[8], args[9]
        slices, signed, form, zero_sums = args[30], args[32], args[33], args[41]
        taps = args[16] * args[17] * args[18]
        fours = taps * ((channels + 3) // 4)
        room = 4 * PANEL * (fours + outputs + 2) + 4 * outputs
        scratch = args[31] + part * room
        sums = scratch + 4 * PANEL * fours
        zeros, terms, factors = sums + 4 * PANEL * outputs, sums + 4 * PANEL * (outputs + 1), sums + 4 * PANEL * (outputs + 2)
        positions = args[13] * args[14] * args[15]
        itemsize = 4 if form == INTEGERS else 1
        x_zero = byte_at(args[34], signed) + (MIDDLE if signed != 0 else 0)
        fill = np.uint32(byte_at(args[34], signed) & 255) * np.uint32(0x01010101)
        y_zero = np.float32(byte_at(args[40], 1 if form == SIGNED_BYTES else 0))
        for j in range(PANEL):
            i32(zeros)[j] = x_zero
            i32(terms)[j] = 0
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
                source = args[0] + (image * groups + group) * channels * args[10] * args[11] * args[12]
                _packed(args, source, start, wide, scratch, fill, signed)
                if zero_sums == 0:
                    _column_terms(scratch, fours, x_zero, channels * taps, terms)
            low, high = outputs * piece // slices, outputs * (piece + 1) // slices
            own = group * outputs + low
            column(args[1] + own * fours * 4, fours * 4, scratch, fours, sums, high - low)
            if form != INTEGERS:
                for row in range(high - low):
                    f32(factors)[row] = f32(args[37])[0] * f32(args[38])[own + row] / f32(args[39])[0]
            integers = args[3] + 4 * own if args[3] != 0 else args[3]
            y = args[2] + ((image * groups * outputs + own) * positions + start) * itemsize
            results(
                sums, high - low, wide, form, args[35] + 4 * own, args[36] + 4 * own, zeros, terms, factors, 1, integers, 0, y_zero, y,
                positions * itemsize,
            )

    return convolved_bytes


convolved_bytes, plain_convolved_bytes = _convolved(column_of_byte_tiles), _convolved(column_of_plain_byte_tiles)


def _fours_of_channels(w: np.ndarray) -> np.ndarray:
    """Kernels [out, channels, ...] as rows of signed bytes [out, taps, channels in fours]."""
    out, channels = w.shape[:2]
    rows = byte_rows(w.reshape(out, channels, -1).transpose(0, 2, 1).reshape(-1, channels))
    return np.ascontiguousarray(rows.reshape(out, -1))


def convolution(
    step: Step, x: Buffer, x_zero: Buffer | None, w_index: int, w_zero: np.ndarray | None, form: int,
    scales: tuple[Buffer, np.ndarray, Buffer] | None, y_zero: Buffer | None, bias: Buffer | None, kernel: Any = convolved_bytes,
) -> Launch | None:
    """A convolution; scales are of the input, of each output channel, and of the result."""
    w, held = step.inputs[w_index], step.constant(w_index)
    groups = step.attributes["group"]
    if w is None or held is None or x.dtype not in (U8, I8) or held.dtype not in (U8, I8) or len(x.shape) not in (3, 4, 5):
        return None
    if w.shape[1] * groups != x.shape[1] or (x_zero is not None and x_zero.count != 1) or w.shape[0] % groups:
        return None
    axes = plan_window(step, x, w)
    if axes is None:
        return None
    geometry = _geometry(axes)
    y = step.output()
    images, channels, outputs = x.shape[0], w.shape[1], w.shape[0] // groups
    taps = math.prod(geometry[6:9])
    fours = taps * -(-channels // 4)
    zero = 0 if w_zero is None else w_zero
    zeros = np.broadcast_to(np.asarray(zero, np.int32).reshape(-1), (w.shape[0],)) - (MIDDLE if held.dtype == U8 else 0)
    moved = held.astype(np.int64) - (MIDDLE if held.dtype == U8 else 0)
    sums = moved.reshape(len(held), -1).sum(1).astype(np.int32)
    panels = images * groups * -(-math.prod(geometry[3:6]) // PANEL)
    singly = channels == 1 and axes[0] is POINT and taps <= MOST_TAPS
    slices = 1 if panels >= 4 * step.threads else max(1, min(outputs // 12, -(-4 * step.threads // panels)))
    parts = step.parts(panels * slices, y.count * channels * taps / 32)
    room = 4 * PANEL * (fours + outputs + 2) + 4 * outputs
    if singly:
        slices = band_rows(geometry)
        parts = step.parts(images * w.shape[0] * -(-geometry[4] // slices), y.count * taps / 4)
        room = 4 * (band_room(geometry) + 4 * (geometry[5] + LANES))
        own = np.broadcast_to(np.asarray(zero, np.int64).reshape(-1), (w.shape[0],))
        weights = step.held((held.astype(np.int64).reshape(len(held), -1) - own[:, None]).astype(np.float32))
    else:
        weights = step.packed(w_index, "fours", _fours_of_channels)
    one = step.held(np.ones(1, np.float32))
    x_scale, w_scale, y_scale = (one, np.ones(w.shape[0], np.float32), one) if scales is None else scales
    arguments = (
        x, weights, y, 0 if bias is None else bias, 0, 0, images, groups, channels, outputs, *geometry,
        0, 0, slices, step.scratch(parts * room), int(x.dtype == I8), form,
        0 if x_zero is None else x_zero,
        step.held(zeros.astype(np.int32)), step.held(sums), x_scale, step.held(np.broadcast_to(w_scale.astype(np.float32), (w.shape[0],))), y_scale,
        0 if y_zero is None else y_zero, int(not zeros.any()),
    )
    return Launch(convolved_bytes_by_channel if singly else kernel, arguments, parts)


def _geometry(axes: list[Axis]) -> list[int]:
    columns = zip(*((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True)
    return [length for column in columns for length in column]


def _for_channels(step: Step, index: int, outputs: int) -> np.ndarray | None:
    """A constant of one element or one for each output channel; None for others."""
    found = step.constant(index)
    return found.reshape(-1) if found is not None and found.size in (1, outputs) else None


@native(conv_integer)
def plan_conv_integer(step: Step) -> Planned:
    """Constant kernels."""
    x, w, x_zero, w_zero = [*step.inputs, None, None][:4]
    if x is None or w is None:
        return None
    zeros = None if w_zero is None else _for_channels(step, 3, w.shape[0])
    if w_zero is not None and zeros is None:
        return None
    return convolution(step, x, x_zero, 1, zeros, INTEGERS, None, None, None)


@native(qlinear_conv)
def plan_qlinear_conv(step: Step) -> Planned:
    """Constant kernels with their scales and zero points."""
    x, x_scale, x_zero, w, _, _, y_scale, y_zero, b = [*step.inputs, None][:9]
    if x is None or w is None or x_scale is None or y_scale is None or x_scale.count != 1 or y_scale.count != 1:
        return None
    scales, zeros = _for_channels(step, 4, w.shape[0]), _for_channels(step, 5, w.shape[0])
    dtype = step.output().dtype
    if scales is None or zeros is None or scales.dtype != F32 or dtype not in (U8, I8) or (y_zero is not None and y_zero.count != 1):
        return None
    if b is not None and (b.dtype != np.int32 or b.count != w.shape[0]):
        return None
    form = BYTES if dtype == U8 else SIGNED_BYTES
    return convolution(step, x, x_zero, 3, zeros, form, (x_scale, scales, y_scale), y_zero, b)
