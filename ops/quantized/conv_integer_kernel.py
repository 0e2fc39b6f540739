"""Native ConvInteger and QLinearConv with constant kernels: four channels are interleaved for dot4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import f32, i32, share, u8, u32
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.bytes import load_u8, store_i32
from ...runtime.simd.dot4_u8s8 import PATH
from ...runtime.simd.memory import evens, load_f32, store_masked
from ...runtime.simd.vector import LANES
from ..kernels.byte_lookup import launch_lookup, lookup_line
from ..kernels.conv.depthwise import band_elements, band_rows
from ..kernels.conv.depthwise_dot4 import band_of, depthwise_kernel, pack_taps
from ..kernels.conv.depthwise_u8 import MAX_TAPS, ByteConvolution, depthwise_u8
from ..kernels.conv.direct_amx import fills_tiles, launch_tiles, pack_tiles, phases_of, tile_depth
from ..kernels.conv.direct_u8 import (
    STRIDES,
    DirectShape,
    is_faster,
    launch_direct,
    order_output_panels,
    pack_output_panels,
    pack_sorted_panels,
)
from ..kernels.conv.problem import UNIT_AXIS, window_axes
from ..kernels.gemm.microkernel_u8s8 import BYTE_PAIRS, SIGN_OFFSET, TILES, column_kernel, pack_rows_s8
from ..kernels.gemm.register_tile import PANEL
from ..kernels.gemm.requantize import BYTES, INTEGERS, SIGNED_BYTES, load_zero_point, requantize_rows
from ..rules.sliding_window import Axis
from .conv_integer import conv_integer, qlinear_conv
from .lookup_bytes import qlinear_conv_lookup

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


@inner
def _line(source: Any, stride: Any, target: Any, length: Any) -> None:
    """`length` words, `stride` apart."""
    if stride > 2:
        for j in range(length):
            u32(target)[j] = u32(source)[j * stride]
        return
    for begin in range(0, length, LANES):
        written, place = (1 << min(LANES, length - begin)) - 1, source + 4 * stride * begin
        words = load_f32(place) if stride == 1 else evens(load_f32(place), load_f32(place + 4 * LANES))
        store_masked(target + 4 * begin, words, written)


@inner
def _words(source: Any, plane: Any, left: Any, count: Any, turns: Any, line: Any) -> None:
    """`count` words of `left` channels, whose planes are so many bytes apart."""
    for j in range(0, count, LANES):
        lanes = (1 << min(LANES, count - j)) - 1
        at = source + j
        words = load_u8(at, lanes)
        if left == 4:
            second, fourth = load_u8(at + plane, lanes), load_u8(at + 3 * plane, lanes)
            words = (
                words | second << np.int32(8) | (load_u8(at + 2 * plane, lanes) | fourth << np.int32(8)) << np.int32(16)
            )
        else:
            for channel in range(1, left):
                words = words | load_u8(at + channel * plane, lanes) << np.int32(8 * channel)
        store_i32(line + 4 * j, words ^ turns, lanes)


@range_kernel
def interleave_channels(
    bytes_at: Address,
    target: Address,
    images: int,
    channels: int,
    depth: int,
    height: int,
    width: int,
    pad_z: int,
    pad_y: int,
    pad_x: int,
    tall: int,
    high: int,
    wide: int,
    down: int,
    along: int,
    signed: int,
    x_zero: Address,
    scratch: Address,
    part: int,
    parts: int,
) -> None:
    """Bytes as words of four channels [images, quads, padded depth `tall`, height `high`, width `wide`].

    Signed bytes become unsigned ones; padding is the zero point, and 0 in channels that are not there. Rows of the
    same remainder of `down` are adjacent, and in these columns of the same remainder of `along`.
    """
    turn = np.int32(SIGN_OFFSET if signed != 0 else 0)
    zero = np.uint32((load_zero_point(x_zero, signed) & 255) ^ turn)
    quads, plane = (channels + 3) // 4, depth * height * width
    rows, high_phase, wide_phase = tall * high, (high + down - 1) // down, (wide + along - 1) // along
    own = scratch + part * 4 * (wide + 4 * LANES)
    first, last = share(images * quads * rows, part, parts)
    for unit in range(first, last):
        row, four, image = unit % rows, unit // rows % quads, unit // rows // quads
        y = row % high
        at_z, at_y, left = row // high - pad_z, y - pad_y, min(4, channels - 4 * four)
        fill, turns = np.uint32(0), np.int32(0)
        for channel in range(left):
            fill |= zero << np.uint32(8 * channel)
            turns |= turn << np.int32(8 * channel)
        phases = ((unit // high * down + y % down) * along * high_phase + y // down) * wide_phase
        made = target + 4 * phases if along == 1 else own
        line, inside = u32(made), at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
        begin, end = (pad_x, pad_x + width) if inside else (wide, wide)
        for j in range(begin):
            line[j] = fill
        source = bytes_at + (image * channels + 4 * four) * plane + (at_z * height + at_y) * width
        _words(source, plane, left, end - begin, turns, made + 4 * begin)
        for j in range(end, wide):
            line[j] = fill
        if along > 1:
            for phase in range(along):
                place = target + 4 * (phases + phase * high_phase * wide_phase)
                _line(own + 4 * phase, along, place, wide_phase)


@inner
def _pack_windows(conv: Any, source: Any, start: Any, wide: Any, panel: Any) -> None:
    """`wide` windows of an image of words from position `start` on as a panel [taps, channels / 4, PANEL, 4]."""
    channels, high, width = conv.channels, conv.height, conv.width
    out_height, out_width, kernel_z, kernel_y = conv.out_height, conv.out_width, conv.kernel_z, conv.kernel_y
    kernel_x = conv.kernel_x
    quads = (channels + 3) // 4
    plane = 4 * conv.depth * high * width
    column = 0
    while column < wide:
        row, first_x = (start + column) // out_width, (start + column) % out_width
        row_z, row_y = row // out_height * conv.stride_z, row % out_height * conv.stride_y
        length = min(wide - column, out_width - first_x)
        for tap in range(kernel_z * kernel_y):
            line = (row_z + tap // kernel_y * conv.dilation_z) * high + row_y + tap % kernel_y * conv.dilation_y
            for kx in range(kernel_x):
                place = source + 4 * (line * width + first_x * conv.stride_x + kx * conv.dilation_x)
                target = panel + 4 * ((tap * kernel_x + kx) * quads * PANEL + column)
                for four in range(quads):
                    _line(place + four * plane, conv.stride_x, target + 4 * four * PANEL, length)
        column += length
    line = u32(panel)
    if wide < PANEL:
        for k in range(kernel_z * kernel_y * kernel_x * quads):
            for j in range(wide, PANEL):
                line[k * PANEL + j] = np.uint32(0)


@inner
def _column_sums(panel: Any, quads: Any, zero: Any, depth: Any, terms: Any) -> None:
    """Sums of the columns of a panel, less the zero point for each of `depth` elements."""
    line, made = u8(panel), i32(terms)
    for j in range(PANEL):
        total = -zero * np.int32(depth)
        for k in range(quads):
            for byte in range(4):
                total += np.int32(line[4 * (k * PANEL + j) + byte])
        made[j] = total


@range_kernel
def row_factors(
    outputs: int,
    sums: Address,
    bias: Address,
    x_zero: Address,
    signed: int,
    x_scale: Address,
    scales: Address,
    y_scale: Address,
    shifts: Address,
    multipliers: Address,
    part: int,
    parts: int,
) -> None:
    """Shifts and multipliers as `requantize_rows` takes them, from the sums of the kernels of output channels and their
    biases, 0 for none."""
    zero = load_zero_point(x_zero, signed) + (SIGN_OFFSET if signed != 0 else 0)
    for row in range(outputs):
        more = i32(bias)[row] if bias != 0 else np.int32(0)
        i32(shifts)[row] = more - zero * i32(sums)[row]
        f32(multipliers)[row] = f32(x_scale)[0] * f32(scales)[row] / f32(y_scale)[0]


def window_kernel(path: str) -> Any:
    """The kernel of a row of `INTEGERS`."""
    column = column_kernel(path)

    @range_kernel
    def convolve_windows(
        conv: ByteConvolution, zeros: Address, shifts: Address, multipliers: Address, part: int, parts: int
    ) -> None:
        """As `conv_kernel.convolved`, of what `interleave_channels` makes and rows of signed bytes; results as
        `requantize_rows` says."""
        images, groups, channels, outputs = conv.images, conv.groups, conv.channels, conv.outputs
        slices, form = conv.slices, conv.form
        taps = conv.kernel_z * conv.kernel_y * conv.kernel_x
        quads = taps * ((channels + 3) // 4)
        scratch = conv.scratch + part * 4 * PANEL * (quads + outputs + 1)
        sums, terms = scratch + 4 * PANEL * quads, scratch + 4 * PANEL * (quads + outputs)
        positions = conv.out_depth * conv.out_height * conv.out_width
        itemsize = 4 if form == INTEGERS else 1
        x_zero = load_zero_point(conv.x_zero, conv.signed) + (SIGN_OFFSET if conv.signed != 0 else 0)
        y_zero = np.float32(load_zero_point(conv.y_zero, 1 if form == SIGNED_BYTES else 0))
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
                source = (
                    conv.source
                    + (image * groups + group) * ((channels + 3) // 4) * 4 * conv.depth * conv.height * conv.width
                )
                _pack_windows(conv, source, start, wide, scratch)
                if zeros != 0:
                    _column_sums(scratch, quads, x_zero, channels * taps, terms)
            low, high = outputs * piece // slices, outputs * (piece + 1) // slices
            own = group * outputs + low
            column(conv.weights + own * quads * 4, quads * 4, scratch, quads, sums, high - low)
            requantize_rows(
                sums,
                high - low,
                wide,
                form,
                zeros + 4 * own if zeros != 0 else zeros,
                terms,
                shifts + 4 * own,
                multipliers + 4 * own,
                y_zero,
                conv.target + ((image * groups * outputs + own) * positions + start) * itemsize,
                positions * itemsize,
            )
            if conv.table != 0:
                y = conv.target + (image * groups * outputs + own) * positions + start
                for row in range(high - low):
                    lookup_line(conv.table, y + row * positions, y + row * positions, wide)

    return convolve_windows


convolve_windows = window_kernel(PATH)


def _interleave_channels(w: np.ndarray) -> np.ndarray:
    """Kernels [out, channels, ...] as rows of signed bytes [out, taps, channels in quads]."""
    out, channels = w.shape[:2]
    rows = pack_rows_s8(w.reshape(out, channels, -1).transpose(0, 2, 1).reshape(-1, channels))
    return np.ascontiguousarray(rows.reshape(out, -1))


@dataclass(frozen=True)
class ByteProblem:
    """A convolution of bytes with constant kernels.

    Attributes:
        w_index: position of the kernels among the inputs.
        w_zero: their zero points, one or one for each output channel.
        form: of the results.
        scales: of the input, of each output channel, and of the result.
        table: of what bytes of the results become.
    """

    step: Step
    x: Buffer
    w_index: int
    w_zero: np.ndarray | None
    form: int
    x_zero: Buffer | None = None
    scales: tuple[Buffer, np.ndarray, Buffer] | None = None
    y_zero: Buffer | None = None
    bias: Buffer | None = None
    table: Buffer | None = None

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return int(self.step.attributes["group"])

    @property
    def signed(self) -> int:
        """Whether bytes of the input are signed."""
        return int(self.x.dtype == I8)

    def kernels(self) -> Buffer | None:
        """The kernels, None if this module has no kernel for the convolution."""
        x, w, x_zero = self.x, self.step.inputs[self.w_index], self.x_zero
        if w is None or not self.step.is_constant(self.w_index) or len(x.shape) not in (3, 4, 5):
            return None
        if x.dtype not in (U8, I8) or w.dtype not in (U8, I8) or (x_zero is not None and x_zero.count != 1):
            return None
        return None if w.shape[1] * self.groups != x.shape[1] or w.shape[0] % self.groups else w

    def per_output(self, values: np.ndarray | None, default: float, dtype: Any, outputs: int) -> np.ndarray:
        """A number for each output channel."""
        return np.broadcast_to(np.asarray(default if values is None else values, dtype).reshape(-1), (outputs,))

    def factors(self, outputs: int) -> dict[str, Any]:
        """Bias and scales, as kernels take them."""
        one = self.step.constant_buffer(np.ones(1, np.float32))
        x_scale, own, y_scale = (one, None, one) if self.scales is None else self.scales
        scales = self.step.constant_buffer(self.per_output(own, 1, np.float32, outputs))
        return {"bias": _default(self.bias), "x_scale": x_scale, "scales": scales, "y_scale": y_scale}

    def arguments(
        self, source: Buffer, weights: Buffer, geometry: Sequence[int], slices: int, scratch: Buffer
    ) -> ByteConvolution:
        """The arguments that the kernels share."""
        w = self.step.inputs[self.w_index]
        assert w is not None
        shape = self.x.shape[0], self.groups, w.shape[1], w.shape[0] // self.groups
        others = _default(self.x_zero), _default(self.y_zero), _default(self.table)
        return ByteConvolution._make(
            (source, weights, self.step.output(), *shape, *geometry, slices, scratch, self.signed, self.form, *others)
        )


def _requantization(given: ByteProblem, outputs: int) -> tuple[list[Launch], dict[str, Buffer]]:
    """Shifts and multipliers as `row_factors` computes them, and its launch unless they are constant."""
    step, sums = given.step, given.step.derived_constant(given.w_index, "sums", _sum_kernels)
    x_scale, own, y_scale = (None, None, None) if given.scales is None else given.scales
    buffers = (given.x_zero, given.bias, x_scale, y_scale)
    constants = [None if each is None else step.constant(step.inputs.index(each)) for each in buffers]
    if all(buffer is None or constant is not None for buffer, constant in zip(buffers, constants, strict=True)):
        zero, bias, left, right = (np.zeros(1, np.int64) if each is None else each.reshape(-1) for each in constants)
        shifts = bias.astype(np.int64) - (zero.astype(np.int64) + SIGN_OFFSET * given.signed) * sums
        multipliers = np.ones(outputs, np.float32)
        if given.scales is not None:
            with np.errstate(all="ignore"):
                multipliers = left * given.per_output(own, 1, np.float32, outputs) / right
        made = [np.pad(each, (0, PANEL)) for each in (shifts.astype(np.int32), multipliers)]
        return [], dict(zip(("shifts", "multipliers"), map(step.constant_buffer, made), strict=True))
    computed = {name: step.scratch(4 * (outputs + PANEL)) for name in ("shifts", "multipliers")}
    known = {"signed": given.signed, "x_zero": _default(given.x_zero), "sums": step.constant_buffer(sums)}
    return [Launch(row_factors, outputs=outputs, **known, **given.factors(outputs), **computed)], computed


def launch_convolution(given: ByteProblem, kernel: Any = convolve_windows, path: str = PATH) -> list[Launch] | None:
    """The launches of a convolution, None if a kernel is missing."""
    step, x, w, y = given.step, given.x, given.kernels(), given.step.output()
    axes = None if w is None else window_axes(step, x, w)
    if w is None or axes is None:
        return None
    geometry = _geometry(axes)
    images, groups, channels, outputs = x.shape[0], given.groups, w.shape[1], w.shape[0] // given.groups
    taps = math.prod(geometry[6:9])
    quads = -(-channels // 4)
    zero = given.per_output(given.w_zero, 0, np.int32, w.shape[0])
    zeros = zero - (SIGN_OFFSET if w.dtype == U8 else 0)
    if channels == 1 and axes[0] is UNIT_AXIS and taps <= MAX_TAPS:
        return _depthwise_dot4(given, geometry, zeros, path) or _depthwise(given, geometry, zero)
    prepared, requantization = _requantization(given, w.shape[0])
    padded = [
        max(axis.size + axis.begin, (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1)
        for axis in axes
    ]
    direct = given.form != INTEGERS and not zeros.any()
    last = {"y_zero": _default(given.y_zero), "table": _default(given.table), "form": given.form}
    if direct and path in TILES and axes[0] is UNIT_AXIS and fills_tiles(groups, outputs, quads):
        phases = phases_of(axes[1:], padded[1:])
        steps, depth = -(-quads // tile_depth(quads)), tile_depth(quads)
        words = (images * groups * quads + steps * depth - quads) * phases.words
        source = step.scratch(4 * (words + 2 * PANEL))
        weights = step.packed(given.w_index, ("tiles", groups), lambda array: pack_tiles(array, groups))
        sizes = (images * groups, groups, outputs, quads)
        made = launch_tiles(step, source, weights, sizes, phases, axes[1:], requantization | last, path)
        return [*prepared, _interleaved(given, source, geometry, padded, phases.steps), made]
    count = images * groups * quads * math.prod(padded)
    source = step.scratch(4 * (count + 2 * LANES))
    before = [*prepared, _interleaved(given, source, geometry, padded)]
    if direct and axes[2].stride in STRIDES and is_faster(outputs, taps * quads, geometry[3:6]):
        pairs = path == BYTE_PAIRS
        pack = pack_sorted_panels if pairs else pack_output_panels
        weights = step.packed(given.w_index, ("outputs", groups), lambda array: pack(array, groups))
        order = (
            step.derived_constant(given.w_index, ("order", groups), lambda array: order_output_panels(array, groups))
            if pairs
            else None
        )
        shape = DirectShape(images, groups, outputs, quads, padded, axes)
        return [*before, launch_direct(step, source, weights, y, shape, requantization | last, order, path)]
    panels = images * groups * -(-math.prod(geometry[3:6]) // PANEL)
    slices = 1 if panels >= 4 * step.threads else max(1, min(outputs // 12, -(-4 * step.threads // panels)))
    parts = step.parts(panels * slices, y.count * channels * taps / 32)
    weights = step.packed(given.w_index, "interleaved", _interleave_channels)
    scratch = step.scratch(parts * 4 * PANEL * (taps * quads + outputs + 1))
    held = step.constant_buffer(zeros.astype(np.int32)) if zeros.any() else 0
    told = given.arguments(source, weights, [*padded, *geometry[3:]], slices, scratch)
    return [*before, Launch(kernel, parts, conv=told, zeros=held, **requantization)]


def _interleaved(
    given: ByteProblem, target: Buffer, geometry: Sequence[int], padded: Sequence[int], phases: tuple[int, int] = (1, 1)
) -> Launch:
    """The launch of `interleave_channels` for planes of padded lengths in phases down and along."""
    step, x = given.step, given.x
    images, channels = x.shape[0] * given.groups, x.shape[1] // given.groups
    sizes, pads = geometry[:3], geometry[15:18]
    if phases == (1, 1) and [*sizes] == [*padded]:
        sizes = padded = [1, 1, math.prod(padded)]
    count = images * -(-channels // 4) * math.prod(padded)
    parts = step.parts(count // padded[2], count)
    spare = 4 * parts * (padded[2] + 4 * LANES)
    return Launch(
        interleave_channels,
        parts,
        bytes_at=x,
        target=target,
        images=images,
        channels=channels,
        **dict(zip(("depth", "height", "width"), sizes, strict=True)),
        **dict(zip(("pad_z", "pad_y", "pad_x"), pads, strict=True)),
        **dict(zip(("tall", "high", "wide"), padded, strict=True)),
        down=phases[0],
        along=phases[1],
        signed=given.signed,
        x_zero=_default(given.x_zero),
        scratch=step.scratch(spare) if phases[1] > 1 else 0,
    )


def _depthwise_dot4(given: ByteProblem, geometry: list[int], zeros: np.ndarray, path: str) -> list[Launch] | None:
    """One input channel for each group, kernels without zero points, and bytes as results; None for others."""
    band = band_of(geometry)
    if band is None or given.form == INTEGERS or zeros.any():
        return None
    step, y, outputs = given.step, given.step.output(), len(zeros)
    units = given.x.shape[0] * outputs * -(-geometry[4] // band.rows)
    parts = step.parts(units, y.count * math.prod(geometry[6:9]) / 16)
    scratch = step.scratch(parts * (band.words + band.results))
    across = geometry[8]
    weights = step.packed(given.w_index, ("taps", across), lambda array: pack_taps(array, across))
    told = given.arguments(given.x, weights, geometry, band.rows, scratch)
    prepared, requantization = _requantization(given, outputs)
    sizes = {"pitch": band.pitch, "words_bytes": band.words, "results_bytes": band.results}
    return [*prepared, Launch(depthwise_kernel(band.form, path), parts, conv=told, **sizes, **requantization)]


def _depthwise(given: ByteProblem, geometry: list[int], zero: np.ndarray) -> list[Launch]:
    """One input channel for each group."""
    step, y, outputs = given.step, given.step.output(), len(zero)
    band = band_rows(geometry)
    parts = step.parts(given.x.shape[0] * outputs * -(-geometry[4] // band), y.count * math.prod(geometry[6:9]) / 4)
    scratch = step.scratch(parts * 4 * (band_elements(geometry) + 4 * (geometry[5] + LANES)))
    weights = step.packed(given.w_index, ("differences", zero.tobytes()), lambda array: _centered_kernels(array, zero))
    told = given.arguments(given.x, weights, geometry, band, scratch)
    launch = Launch(depthwise_u8, parts, conv=told, **given.factors(outputs))
    if given.table is None:
        return [launch]
    return [launch, launch_lookup(step, y, given.table, y, 1, y.count, y.count)]


def _default(buffer: Buffer | None) -> Buffer | int:
    return 0 if buffer is None else buffer


def _centered_kernels(kernels: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Kernels less their zero points."""
    return (kernels.astype(np.int32).reshape(len(kernels), -1) - zeros[:, None]).astype(np.float32)


def _sum_kernels(kernels: np.ndarray) -> np.ndarray:
    """The sum of the signed bytes of each kernel."""
    made: np.ndarray = kernels.reshape(len(kernels), -1).sum(1, dtype=np.int64)
    return (made - (SIGN_OFFSET * math.prod(kernels.shape[1:]) if kernels.dtype == U8 else 0)).astype(np.int32)


def _geometry(axes: list[Axis]) -> list[int]:
    columns = zip(
        *((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True
    )
    return [length for column in columns for length in column]


def _per_channel(step: Step, index: int, outputs: int) -> np.ndarray | None:
    """A constant of one element or one for each output channel; None for others."""
    found = step.constant(index)
    return found.reshape(-1) if found is not None and found.size in (1, outputs) else None


@native(conv_integer)
def plan_conv_integer(step: Step) -> Planned:
    """Plan constant kernels."""
    x, w, x_zero, w_zero = [*step.inputs, None, None][:4]
    if x is None or w is None:
        return None
    zeros = None if w_zero is None else _per_channel(step, 3, w.shape[0])
    if w_zero is not None and zeros is None:
        return None
    return launch_convolution(ByteProblem(step, x, 1, zeros, INTEGERS, x_zero))


@native(qlinear_conv, qlinear_conv_lookup)
def plan_qlinear_conv(step: Step) -> Planned:
    """Plan constant kernels, scales and zero points."""
    x, x_scale, x_zero, w, _, _, y_scale, y_zero, b, table = [*step.inputs, None, None][:10]
    if x is None or w is None or x_scale is None or y_scale is None or x_scale.count != 1 or y_scale.count != 1:
        return None
    scales, zeros = _per_channel(step, 4, w.shape[0]), _per_channel(step, 5, w.shape[0])
    dtype = step.output().dtype if y_zero is None else y_zero.dtype
    if (
        scales is None
        or zeros is None
        or scales.dtype != F32
        or dtype not in (U8, I8)
        or (y_zero is not None and y_zero.count != 1)
    ):
        return None
    if b is not None and (b.dtype != np.int32 or b.count != w.shape[0]):
        return None
    form = BYTES if dtype == U8 else SIGNED_BYTES
    given = ByteProblem(step, x, 3, zeros, form, x_zero, (x_scale, scales, y_scale), y_zero, b, table)
    return launch_convolution(given)
