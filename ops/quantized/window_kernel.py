"""Native ConvInteger and QLinearConv with constant kernels: four channels of a window stand together in panels of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i32, share, u8, u32
from ...runtime.simd import LANES
from ..math.lane_kernel import evens, load_single, store_some
from ..nn.channel_kernel import band_room, band_rows
from ..nn.problem_kernel import POINT, plan_window
from ..nn.window import Axis
from .byte_dot_kernel import PATH
from .byte_kernel import MIDDLE, PANEL, byte_rows, column_by
from .byte_lane_kernel import load_unsigned, store_words
from .channel_kernel import MOST_TAPS, convolved_bytes_by_channel
from .conv import conv_integer, qlinear_conv
from .direct_kernel import STRIDES, directly, panels_of_outputs, pays
from .result_kernel import BYTES, INTEGERS, SIGNED_BYTES, byte_at, finished_rows

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


@range_kernel
def interleaved(args: Any, part: Any, parts: Any) -> None:
    """Bytes; words of four channels [images, fours, padded depth, height, width]; images, channels, sizes, padding before, padded sizes; signed,
    zero point. Signed bytes become unsigned ones; padding is the zero point, and 0 in channels that are not there."""
    channels, depth, height, width, pad_x = args[3], args[4], args[5], args[6], args[9]
    tall, high, wide = args[10], args[11], args[12]
    turn = np.int32(MIDDLE if args[13] != 0 else 0)
    zero = np.uint32((byte_at(args[14], args[13]) & 255) ^ turn)
    fours, plane = (channels + 3) // 4, depth * height * width
    rows = tall * high
    first, last = share(args[2] * fours * rows, part, parts)
    for unit in range(first, last):
        row, four, image = unit % rows, unit // rows % fours, unit // rows // fours
        at_z, at_y, left = row // high - args[7], row % high - args[8], min(4, channels - 4 * four)
        line, fill, turns = u32(args[1] + 4 * unit * wide), np.uint32(0), np.int32(0)
        for channel in range(left):
            fill |= zero << np.uint32(8 * channel)
            turns |= turn << np.int32(8 * channel)
        inside = at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
        begin, end = (pad_x, pad_x + width) if inside else (wide, wide)
        for j in range(begin):
            line[j] = fill
        source = args[0] + (image * channels + 4 * four) * plane + (at_z * height + at_y) * width
        for j in range(begin, end, LANES):
            lanes = (1 << min(LANES, end - j)) - 1
            at = source + j - begin
            words = load_unsigned(at, lanes)
            if left == 4:
                second, fourth = load_unsigned(at + plane, lanes), load_unsigned(at + 3 * plane, lanes)
                words = words | second << np.int32(8) | (load_unsigned(at + 2 * plane, lanes) | fourth << np.int32(8)) << np.int32(16)
            else:
                for channel in range(1, left):
                    words = words | load_unsigned(at + channel * plane, lanes) << np.int32(8 * channel)
            store_words(args[1] + 4 * (unit * wide + j), words ^ turns, lanes)
        for j in range(end, wide):
            line[j] = fill


@inner
def _line(source: Any, stride: Any, target: Any, length: Any) -> None:
    """`length` words, `stride` apart."""
    if stride > 2:
        for j in range(length):
            u32(target)[j] = u32(source)[j * stride]
        return
    for begin in range(0, length, LANES):
        written, place = (1 << min(LANES, length - begin)) - 1, source + 4 * stride * begin
        words = load_single(place) if stride == 1 else evens(load_single(place), load_single(place + 4 * LANES))
        store_some(target + 4 * begin, words, written)


@inner
def _packed(args: Any, source: Any, start: Any, wide: Any, panel: Any) -> None:
    """`wide` windows of an image of words from position `start` on as a panel [taps, channels / 4, PANEL, 4]."""
    channels, high, width = args[8], args[11], args[12]
    out_height, out_width, kernel_z, kernel_y, kernel_x = args[14], args[15], args[16], args[17], args[18]
    fours = (channels + 3) // 4
    plane = 4 * args[10] * high * width
    column = 0
    while column < wide:
        row, first_x = (start + column) // out_width, (start + column) % out_width
        row_z, row_y = row // out_height * args[19], row % out_height * args[20]
        length = min(wide - column, out_width - first_x)
        for tap in range(kernel_z * kernel_y):
            line = (row_z + tap // kernel_y * args[22]) * high + row_y + tap % kernel_y * args[23]
            for kx in range(kernel_x):
                place = source + 4 * (line * width + first_x * args[21] + kx * args[24])
                target = panel + 4 * ((tap * kernel_x + kx) * fours * PANEL + column)
                for four in range(fours):
                    _line(place + four * plane, args[21], target + 4 * four * PANEL, length)
        column += length
    line = u32(panel)
    if wide < PANEL:
        for k in range(kernel_z * kernel_y * kernel_x * fours):
            for j in range(wide, PANEL):
                line[k * PANEL + j] = np.uint32(0)


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


@range_kernel
def row_factors(args: Any, part: Any, parts: Any) -> None:
    """Output channels; sums of their kernels, biases or 0; zero point of the input and whether it is signed; scales of the input, of the kernels and
    of the results; what `finished_rows` takes: shifts and multipliers."""
    zero = byte_at(args[3], args[4]) + (MIDDLE if args[4] != 0 else 0)
    for row in range(args[0]):
        more = i32(args[2])[row] if args[2] != 0 else np.int32(0)
        i32(args[8])[row] = more - zero * i32(args[1])[row]
        f32(args[9])[row] = f32(args[5])[0] * f32(args[6])[row] / f32(args[7])[0]


def convolved_by(path: str) -> Any:
    """The kernel of a row of `INTEGERS`."""
    column = column_by(path)

    @range_kernel
    def convolved_bytes(args: Any, part: Any, parts: Any) -> None:
        """As `conv_kernel.convolved`, of what `interleaved` makes and rows of signed bytes; results as `finished_rows` says."""
        images, groups, channels, outputs = args[6], args[7], args[8], args[9]
        slices, form, zeros = args[30], args[33], args[35]
        taps = args[16] * args[17] * args[18]
        fours = taps * ((channels + 3) // 4)
        scratch = args[31] + part * 4 * PANEL * (fours + outputs + 1)
        sums, terms = scratch + 4 * PANEL * fours, scratch + 4 * PANEL * (fours + outputs)
        positions = args[13] * args[14] * args[15]
        itemsize = 4 if form == INTEGERS else 1
        x_zero = byte_at(args[34], args[32]) + (MIDDLE if args[32] != 0 else 0)
        y_zero = np.float32(byte_at(args[38], 1 if form == SIGNED_BYTES else 0))
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
                source = args[0] + (image * groups + group) * ((channels + 3) // 4) * 4 * args[10] * args[11] * args[12]
                _packed(args, source, start, wide, scratch)
                if zeros != 0:
                    _column_terms(scratch, fours, x_zero, channels * taps, terms)
            low, high = outputs * piece // slices, outputs * (piece + 1) // slices
            own = group * outputs + low
            column(args[1] + own * fours * 4, fours * 4, scratch, fours, sums, high - low)
            finished_rows(
                sums, high - low, wide, form, zeros + 4 * own if zeros != 0 else zeros, terms, args[36] + 4 * own, args[37] + 4 * own, y_zero,
                args[2] + ((image * groups * outputs + own) * positions + start) * itemsize, positions * itemsize,
            )

    return convolved_bytes


convolved_bytes = convolved_by(PATH)


def _fours_of_channels(w: np.ndarray) -> np.ndarray:
    """Kernels [out, channels, ...] as rows of signed bytes [out, taps, channels in fours]."""
    out, channels = w.shape[:2]
    rows = byte_rows(w.reshape(out, channels, -1).transpose(0, 2, 1).reshape(-1, channels))
    return np.ascontiguousarray(rows.reshape(out, -1))


def convolution(
    step: Step, x: Buffer, x_zero: Buffer | None, w_index: int, w_zero: np.ndarray | None, form: int,
    scales: tuple[Buffer, np.ndarray, Buffer] | None, y_zero: Buffer | None, bias: Buffer | None, kernel: Any = convolved_bytes,
) -> list[Launch] | None:
    """A convolution; scales are of the input, of each output channel, and of the result."""
    w = step.inputs[w_index]
    groups = step.attributes["group"]
    if w is None or not step.known(w_index) or x.dtype not in (U8, I8) or w.dtype not in (U8, I8) or len(x.shape) not in (3, 4, 5):
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
    zero = np.broadcast_to(np.asarray(0 if w_zero is None else w_zero, np.int32).reshape(-1), (w.shape[0],))
    own_scales = np.ones(w.shape[0], np.float32) if scales is None else np.broadcast_to(scales[1].astype(np.float32), (w.shape[0],))
    one = step.held(np.ones(1, np.float32))
    x_scale, y_scale = (one, one) if scales is None else (scales[0], scales[2])
    shared = (int(x.dtype == I8), form, _or(x_zero))
    if channels == 1 and axes[0] is POINT and taps <= MOST_TAPS:
        band = band_rows(geometry)
        parts = step.parts(images * w.shape[0] * -(-geometry[4] // band), y.count * taps / 4)
        scratch = step.scratch(parts * 4 * (band_room(geometry) + 4 * (geometry[5] + LANES)))
        weights = step.packed(w_index, ("differences", zero.tobytes()), lambda array: _differences(array, zero))
        arguments = (
            x, weights, y, _or(bias), 0, 0, images, groups, channels, outputs, *geometry, 0, 0, band, scratch, *shared, 0, 0, x_scale,
            step.held(own_scales), y_scale, _or(y_zero),
        )
        return [Launch(convolved_bytes_by_channel, arguments, parts)]
    panels = images * groups * -(-math.prod(geometry[3:6]) // PANEL)
    slices = 1 if panels >= 4 * step.threads else max(1, min(outputs // 12, -(-4 * step.threads // panels)))
    parts = step.parts(panels * slices, y.count * channels * taps / 32)
    room = 4 * PANEL * (fours + outputs + 1)
    sums = step.packed(w_index, "sums", _kernel_sums)
    shifts, multipliers = (step.scratch(4 * (w.shape[0] + PANEL)) for _ in range(2))
    factors = (w.shape[0], sums, _or(bias), _or(x_zero), shared[0], x_scale, step.held(own_scales), y_scale, shifts, multipliers)
    zeros = zero - (MIDDLE if w.dtype == U8 else 0)
    padded = [max(axis.size + axis.begin, (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1) for axis in axes]
    count = images * groups * -(-channels // 4) * math.prod(padded)
    source = step.scratch(4 * (count + 2 * LANES))
    rest = (images * groups, channels, *geometry[:3], *geometry[15:18], *padded, shared[0], _or(x_zero))
    before = [Launch(row_factors, factors), Launch(interleaved, (x, source, *rest), step.parts(count // padded[2], count))]
    if form != INTEGERS and not zeros.any() and axes[2].stride in STRIDES and pays(outputs, fours, geometry[3:6]):
        weights = step.packed(w_index, ("outputs", groups), lambda array: panels_of_outputs(array, groups))
        finish = (shifts, multipliers, _or(y_zero), form)
        return [*before, directly(step, source, weights, y, images, groups, outputs, -(-channels // 4), padded, axes, finish)]
    weights = step.packed(w_index, "fours", _fours_of_channels)
    arguments = (
        source, weights, y, 0, 0, 0, images, groups, channels, outputs, *padded, *geometry[3:], 0, 0, slices, step.scratch(parts * room), *shared,
        step.held(zeros.astype(np.int32)) if zeros.any() else 0, shifts, multipliers, _or(y_zero),
    )
    return [*before, Launch(kernel, arguments, parts)]


def _or(buffer: Buffer | None) -> Buffer | int:
    return 0 if buffer is None else buffer


def _differences(kernels: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Kernels less their zero points."""
    return (kernels.astype(np.int32).reshape(len(kernels), -1) - zeros[:, None]).astype(np.float32)


def _kernel_sums(kernels: np.ndarray) -> np.ndarray:
    """What the signed bytes of each kernel add up to."""
    made: np.ndarray = kernels.reshape(len(kernels), -1).sum(1, dtype=np.int64)
    return (made - (MIDDLE * math.prod(kernels.shape[1:]) if kernels.dtype == U8 else 0)).astype(np.int32)


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
