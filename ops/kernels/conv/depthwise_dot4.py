"""Depthwise convolution of bytes by dot4: four neighbouring taps of a row are multiplied and added in each lane.

A band of a plane becomes words first: the word of a position holds its byte and the three after it, so that a row of a
window is one word for each four taps. In narrow planes the windows of all rows are one line, and what is computed
between rows is dropped. For kernels with zero points in the middle, strides along a line up to 2, and results that are
bytes.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.address import f32, i32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.simd.bytes import MASKS, TABLES, load_u8, store_bytes
from ....runtime.simd.dot4_u8s8 import PATH, dot
from ....runtime.simd.llvm_vector import F32, I1, I8, I16, I32, Code, Vector, vector_type
from ....runtime.simd.vector import LANES
from ..byte_lookup import lookup_line
from ..gemm.microkernel_u8s8 import SIGN_OFFSET, ZERO
from ..gemm.register_tile import VECTOR
from ..gemm.requantize import MAGIC, SIGNED_BYTES, load_zero_point
from .depthwise_u8 import ByteConvolution

BAND = 8192
"""Maximum number of words of a band."""
STRIDES = (1, 2)
TAPS = 4
"""Taps of a word."""
ROWS = 4
"""Vectors of a tile."""
MAX_WORDS = 16
"""Maximum number of words of a window: they stay in registers."""
SPARE = 2 * ROWS * VECTOR
"""Bytes behind words and results that may be read or written."""


class Form(NamedTuple):
    """Settings that a kernel is specialized for.

    Attributes:
        kernel_y, words: rows of a window, and words of each.
        stride: along a line.
        flat: whether windows of all rows are one line.
        shared: whether rows of the output are one row of the input apart.
    """

    kernel_y: int
    words: int
    stride: int
    flat: bool
    shared: bool


class _Results(NamedTuple):
    """How sums become results."""

    shift: Vector
    factor: Vector
    lower: Vector
    upper: Vector
    zero: Vector

    def of(self, code: Code, sums: Any) -> Any:
        """Bytes of sixteen sums."""
        build = code.builder
        values = (Vector(code, sums) + self.shift).as_float() * self.factor
        above = Vector(code, build.fcmp_ordered(">", values.value, self.lower.value))
        values = code.select(above, values, self.lower)
        below = Vector(code, build.fcmp_ordered("<", values.value, self.upper.value))
        moved = code.select(below, values, self.upper) + float(MAGIC)
        integers = Vector(code, build.bitcast(moved.value, vector_type(I32))) + self.zero
        return build.trunc(integers.value, vector_type(I8))


def _words_of_rows(stride: int) -> Any:
    count = 4 * LANES if MASKS else LANES * (stride + 1)

    @intrinsic
    def words_of_rows(
        typing: Any,
        plane: Any,
        width: Any,
        height: Any,
        top: Any,
        rows: Any,
        pad: Any,
        fill: Any,
        flip: Any,
        target: Any,
        pitch: Any,
    ) -> Any:
        """`rows` rows of a plane from `top` on as words, `pitch` words apart; up to 15 words behind them are written.

        Args:
            fill: the byte outside the plane.
            flip: what bytes are combined with by exclusive or.
        """

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            plane, width, height, top, rows, pad, fill, flip, target, pitch = args
            code, line, masks = Code(builder), vector_type(I8, count), ir.IntType(count)
            filled, flipped = (_splat(builder, builder.trunc(each, I8), line) for each in (fill, flip))
            ones = ir.Constant(masks, -1)
            places = [stride * lane + tap for lane in range(LANES) for tap in range(TAPS)]
            if TABLES:  # LLVM makes a dozen instructions of a permutation that it knows.
                order = builder.asm(ir.FunctionType(line, [line]), "", "=v,0", [ir.Constant(line, places)], False)

            def first(limit: Any) -> Any:
                """The bits of the first `limit` lanes, none below 0."""
                raised = builder.select(builder.icmp_signed("<", limit, code.word(0)), code.word(0), limit)
                whole = builder.icmp_signed(">=", raised, code.word(count))
                shift = raised if masks.width == 64 else builder.trunc(raised, masks)
                bits = builder.sub(builder.shl(ir.Constant(masks, 1), shift), ir.Constant(masks, 1))
                return builder.select(whole, ones, bits)

            with code.loop(code.word(0), rows) as index:
                at = builder.add(top, index)
                inside = builder.and_(builder.icmp_signed(">=", at, code.word(0)), builder.icmp_signed("<", at, height))
                held = builder.select(inside, width, code.word(0))
                row = builder.sub(builder.add(plane, builder.mul(at, width)), pad)
                written = builder.add(target, builder.mul(index, builder.mul(pitch, code.word(4))))
                with code.loop(code.word(0), pitch, LANES) as j:
                    along = builder.mul(j, code.word(stride))
                    begin = builder.sub(pad, along)
                    lanes = builder.and_(first(builder.add(begin, held)), builder.not_(first(begin)))
                    found = _bytes(code, builder.add(row, along), lanes, flipped, filled)
                    if TABLES:
                        words = code.call("llvm.x86.avx512.permvar.qi.512", line, found, order)
                    else:
                        order = ir.Constant(vector_type(I32, 4 * LANES), places)
                        words = builder.shuffle_vector(found, found, order)
                    code.store(words, builder.add(written, builder.mul(j, code.word(4))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), lower

    return words_of_rows


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    """A byte in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(vector_type(I32, kind.count), [0] * kind.count))


def _bytes(code: Code, address: Any, lanes: Any, flipped: Any, filled: Any) -> Any:
    """The bytes whose bits are set in `lanes`, combined with `flipped`, and `filled` elsewhere, which is not read."""
    builder, line = code.builder, flipped.type
    place, chosen = code.at(address, 0, line), builder.bitcast(lanes, vector_type(I1, line.count))

    def masked() -> Any:
        name = f"llvm.masked.load.v{line.count}i8.p0"
        found = code.call(name, line, place, ir.Constant(I32, 1), chosen, ir.Constant(line, [0] * line.count))
        return builder.select(chosen, builder.xor(found, flipped), filled)

    if MASKS:
        return masked()
    with builder.if_else(builder.icmp_signed("==", lanes, ir.Constant(lanes.type, -1))) as (then, otherwise):
        with then:
            whole, first = builder.xor(builder.load(place, align=1), flipped), builder.block
        with otherwise:
            some, second = masked(), builder.block
    made = builder.phi(line)
    made.add_incoming(whole, first)
    made.add_incoming(some, second)
    return made


def _windows_of_rows(form: Form, path: str) -> Any:
    """The function of kernels that computes lines of results."""

    def sums(code: Code, rows: int, x: Any, below: Any, row: Any, weights: list[Any]) -> list[Any]:
        """Sums of sixteen windows in each of `rows` vectors, `below` bytes apart."""
        build, totals, along = code.builder, [ZERO] * rows, 4 * TAPS // form.stride
        shared = form.shared and not form.flat
        for line in range(form.kernel_y + rows - 1 if shared else form.kernel_y):
            for index, word in ((index, word) for word in range(form.words) for index in range(rows)):
                ky = line - index if shared else line
                if not 0 <= ky < form.kernel_y:
                    continue
                place = build.add(x, build.mul(row, code.word(line)))
                place = place if shared else build.add(place, build.mul(below, code.word(index)))
                words = code.load(place, vector_type(I32), along * word)
                totals[index] = dot(code, path, totals[index], words, weights[ky * form.words + word])
        return totals

    @intrinsic
    def windows_of_rows(
        typing: Any,
        rows: Any,
        x: Any,
        below: Any,
        row: Any,
        count: Any,
        taps: Any,
        shift: Any,
        factor: Any,
        zero: Any,
        low: Any,
        high: Any,
        y: Any,
        y_row: Any,
    ) -> Any:
        """`rows` lines of `count` results each, `y_row` bytes apart, from words `below` bytes apart; in tiles of `ROWS`
        lines, the last of which may overlap the one before.

        If the windows of all rows are one line, `rows` is 1, and up to `ROWS` vectors behind results are written.

        Args:
            row: bytes from a row of words to the next.
            taps: signed bytes [kernel_y, words, 4].
            shift, factor: what is added to sums, and what these are multiplied by.
            zero, low, high: zero point and bounds of results.
        """

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows, x, below, row, count, taps, shift, factor, zero, low, high, y, y_row = args
            code = Code(builder)
            weights = [
                code.splat(code.load(taps, I32, TAPS * index)).value for index in range(form.kernel_y * form.words)
            ]
            point = builder.sitofp(zero, F32)
            lower, upper = (code.splat(builder.fsub(each, point)) for each in (low, high))
            results = _Results(
                code.splat(builder.trunc(shift, I32)),
                code.splat(factor),
                lower,
                upper,
                code.splat(builder.trunc(zero, I32)),
            )
            if form.flat:
                with code.loop(code.word(0), count, ROWS * LANES) as j:
                    place = builder.add(x, builder.mul(j, code.word(4)))
                    for index, total in enumerate(sums(code, ROWS, place, code.word(VECTOR), row, weights)):
                        code.store(results.of(code, total), builder.add(y, j), LANES * index)
                return context.get_dummy_value()

            def lines(start: Any, many: int) -> None:
                source = builder.add(x, builder.mul(start, below))
                target = builder.add(y, builder.mul(start, y_row))
                with code.loop(code.word(0), count, LANES) as j:
                    left = builder.sub(count, j)
                    bits = builder.trunc(builder.sub(builder.shl(code.word(1), left), code.word(1)), I16)
                    bits = builder.select(builder.icmp_signed(">=", left, code.word(LANES)), ir.Constant(I16, -1), bits)
                    found = sums(code, many, builder.add(source, builder.mul(j, code.word(4))), below, row, weights)
                    for index, total in enumerate(found):
                        place = builder.add(builder.add(target, j), builder.mul(y_row, code.word(index)))
                        _store_bytes(code, results.of(code, total), place, bits)

            few = builder.icmp_signed("<", rows, code.word(ROWS))
            with builder.if_else(few) as (then, otherwise):
                with then, code.loop(code.word(0), rows) as index:
                    lines(index, 1)
                with otherwise, code.loop(code.word(0), rows, ROWS) as index:
                    last = builder.sub(rows, code.word(ROWS))
                    lines(builder.select(builder.icmp_signed("<", index, last), index, last), ROWS)
            return context.get_dummy_value()

        word, number = types.int64, types.float32
        return types.void(*[word] * 7, number, word, number, number, word, word), lower

    return windows_of_rows


def _store_bytes(code: Code, values: Any, address: Any, lanes: Any) -> None:
    """Store the bytes whose bits are set in `lanes`."""
    builder = code.builder

    def masked() -> None:
        chosen = builder.bitcast(lanes, vector_type(I1))
        place, align = code.at(address, 0, values.type), ir.Constant(I32, 1)
        code.call(f"llvm.masked.store.v{LANES}i8.p0", ir.VoidType(), values, place, align, chosen)

    if MASKS:
        masked()
        return
    with builder.if_else(builder.icmp_signed("==", lanes, ir.Constant(I16, -1))) as (then, otherwise):
        with then:
            code.store(values, address)
        with otherwise:
            masked()


@process_cache
def depthwise_kernel(form: Form, path: str = PATH) -> Any:
    """The kernel of a form, by a row of `INTEGERS`."""
    words_of_rows, windows_of_rows = _words_of_rows(form.stride), _windows_of_rows(form, path)
    flat = form.flat

    @range_kernel
    def depthwise_dot4(
        conv: ByteConvolution,
        shifts: Address,
        multipliers: Address,
        pitch: int,
        words_bytes: int,
        results_bytes: int,
        part: int,
        parts: int,
    ) -> None:
        """Depthwise convolution; slices are rows of a band."""
        images, groups, outputs, height, width = conv.images, conv.groups, conv.outputs, conv.height, conv.width
        out_height, out_width, kernel_y, stride_y = conv.out_height, conv.out_width, conv.kernel_y, conv.stride_y
        band, many = conv.slices, (conv.kernel_x + TAPS - 1) // TAPS
        words = conv.scratch + part * (words_bytes + results_bytes)
        results = words + words_bytes
        flip = np.int32(SIGN_OFFSET if conv.signed != 0 else 0)
        fill = (load_zero_point(conv.x_zero, conv.signed) & np.int32(255)) ^ flip
        signed = 1 if conv.form == SIGNED_BYTES else 0
        zero = load_zero_point(conv.y_zero, signed)
        low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
        bands, row = (out_height + band - 1) // band, 4 * pitch
        first, last = share(images * groups * outputs * bands, part, parts)
        for unit in range(first, last):
            plane, begin = unit // bands, unit % bands * band
            rows, channel = min(band, out_height - begin), plane % (groups * outputs)
            needed, top = (rows - 1) * stride_y + kernel_y, begin * stride_y - conv.pad_y
            source = conv.source + plane // outputs * height * width
            words_of_rows(source, width, height, top, needed, conv.pad_x, fill, flip, words, pitch)
            weights = conv.weights + channel * kernel_y * many * TAPS
            shift, factor = i32(shifts)[channel], f32(multipliers)[channel]
            y = conv.target + (plane * out_height + begin) * out_width
            if flat:
                count = (rows - 1) * pitch + out_width
                windows_of_rows(1, words, 0, row, count, weights, shift, factor, zero, low, high, results, 0)
                lanes = (1 << out_width) - 1
                if conv.table != 0:
                    lookup_line(conv.table, results, results, count)
                for index in range(rows):
                    store_bytes(y + index * out_width, load_u8(results + index * pitch, lanes), lanes)
            else:
                windows_of_rows(
                    rows, words, row * stride_y, row, out_width, weights, shift, factor, zero, low, high, y, out_width
                )
                if conv.table != 0:
                    lookup_line(conv.table, y, y, rows * out_width)

    return depthwise_dot4


class Band(NamedTuple):
    """Layout of a band.

    Attributes:
        rows: output rows.
        pitch: words of a row.
        words, results: bytes of scratch for words, and for results in one line.
    """

    form: Form
    rows: int
    pitch: int
    words: int
    results: int


def band_of(geometry: Sequence[int]) -> Band | None:
    """The bands of a convolution, None for strides along a line above 2, dilations and large windows."""
    width, out_height, out_width, kernel_y, kernel_x = (geometry[index] for index in (2, 4, 5, 7, 8))
    stride_y, stride_x, dilation_y, dilation_x, pad = (geometry[index] for index in (10, 11, 13, 14, 17))
    words = -(-kernel_x // TAPS)
    if stride_x not in STRIDES or dilation_y != 1 or dilation_x != 1 or kernel_y * words > MAX_WORDS:
        return None
    padded = max(pad + width, out_width + kernel_x - 1)
    flat = stride_x == stride_y == 1 and padded < LANES
    pitch = padded if flat else -(-(out_width + (words - 1) * TAPS // stride_x) // LANES) * LANES
    most = max(1, BAND // pitch // stride_y - kernel_y)
    rows = -(-out_height // -(-out_height // most))
    many = (rows - 1) * stride_y + kernel_y
    form = Form(kernel_y, words, stride_x, flat, stride_y == 1)
    return Band(form, rows, pitch, 4 * many * pitch + SPARE, rows * pitch + SPARE if flat else 0)


def pack_taps(kernels: np.ndarray, kernel_x: int) -> np.ndarray:
    """Kernels [out, 1, ...], whose rows have `kernel_x` taps, as signed bytes [out, y, x / 4, 4], zero-padded. Their
    last axis may be of length one and no axis of the windows."""
    moved = kernels if kernels.dtype == np.int8 else (kernels.astype(np.int16) - SIGN_OFFSET).astype(np.int8)
    rows = moved.reshape(len(kernels), -1, kernel_x)
    return np.pad(rows, [(0, 0), (0, 0), (0, -kernel_x % TAPS)])
