"""Direct convolution of bytes by AMX tiles: 16 output channels by 16 neighbouring positions, 64 products for each.

The input is words of four channels, one plane of words for each quad of channels. Sixteen neighbouring words of a few
planes are a tile as AMX wants it, wherever they begin, so that windows are read in place. Positions of all lines of a
plane are one line; what is computed between lines is dropped. Where windows move by more than one position, planes are
split by phases first, so that the windows' neighbours are neighbours there. For kernels with zero points in the middle,
and results that are bytes.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.address import share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Step
from ....runtime.simd.amx import LINE, ROWS, Shape
from ....runtime.simd.bytes import MASKS, copy_bytes
from ....runtime.simd.llvm_vector import F32, I8, I16, I32, I64, LANES, Code, Vector, vector_type
from ...rules.sliding_window import Axis
from ..byte_lookup import lookup_line
from ..gemm.microkernel_u8s8 import TILES, pack_rows_s8
from ..gemm.register_tile import PANEL
from ..gemm.requantize import SIGNED_BYTES, load_zero_point, requantize_rows

POSITIONS = 512
"""Positions per unit of work, roughly."""
ROW = POSITIONS + 2 * PANEL
"""Bytes of scratch for the results of an output channel."""
SCRATCH = 4 * PANEL * PANEL + PANEL * ROW
"""Bytes of scratch of a part: sums, and results."""
AHEAD = 8192
"""Bytes ahead of their use at which weights are prefetched."""
HALVES = PANEL // ROWS
"""Tiles along either side of a block of sums."""
DEPTHS = (4, 8, 12, 16)
"""Quads of channels of a tile."""


@intrinsic
def requantize_pairs(
    typing: Any, sums: Any, rows: Any, signed: Any, shifts: Any, multipliers: Any, zero: Any, y: Any, y_row: Any
) -> Any:
    """As `requantize_rows`, of an even number of rows of `PANEL` sums to bytes; instructions of AVX-512BW."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sums, rows, signed, shifts, multipliers, zero, y, y_row = args
        code, words = Code(builder), vector_type(I32)
        limit = code.floats_of([2.0**30] * LANES)
        undefined = ir.Constant(vector_type(I16, 2 * LANES), ir.Undefined)
        one = builder.insert_element(undefined, builder.trunc(zero, I16), ir.Constant(I32, 0))
        point = builder.shuffle_vector(one, undefined, ir.Constant(vector_type(I32, 2 * LANES), [0] * 2 * LANES))

        def integers(line: Any, shift: Vector, factor: Vector, half: int) -> Any:
            """Sixteen results without their zero point; NaN is the lowest of all integers."""
            real = (Vector(code, code.load(line, words, 4 * LANES * half)) + shift).as_float() * factor
            above = Vector(code, builder.fcmp_ordered("<", limit.value, real.value))
            whole = code.select(above, limit, real).value, ir.Constant(words, [0] * LANES)
            name = "llvm.x86.avx512.mask.cvtps2dq.512"
            return code.call(name, words, *whole, ir.Constant(I16, -1), ir.Constant(I32, 4))

        def pairs(name: str) -> None:
            with code.loop(code.word(0), rows, 2) as row:
                made = []
                for index in range(2):
                    own = builder.add(row, code.word(index))
                    at, line = builder.mul(own, code.word(4)), builder.mul(own, code.word(4 * PANEL))
                    shift = code.splat(code.load(builder.add(shifts, at), I32))
                    factor = code.splat(code.load(builder.add(multipliers, at), F32))
                    halves = [integers(builder.add(sums, line), shift, factor, half) for half in range(2)]
                    short = code.call("llvm.x86.avx512.packssdw.512", point.type, *halves)
                    made.append(code.call("llvm.sadd.sat.v32i16", point.type, short, point))
                found = builder.bitcast(code.call(name, vector_type(I8, 4 * LANES), *made), words)
                for index in range(2):
                    order = [4 * quarter + 2 * index + half for half in range(2) for quarter in range(4)]
                    part = builder.shuffle_vector(found, found, ir.Constant(vector_type(I32, LANES // 2), order))
                    place = builder.add(y, builder.mul(builder.add(row, code.word(index)), y_row))
                    code.store(part, place)

        with builder.if_else(builder.icmp_signed("!=", signed, code.word(0))) as (then, otherwise):
            with then:
                pairs("llvm.x86.avx512.packsswb.512")
            with otherwise:
                pairs("llvm.x86.avx512.packuswb.512")
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), lower


def _product(depth: int, way: str) -> tuple[Any, Any, Any]:
    """Functions of kernels: configure tiles, multiply, and release tiles."""
    totals = HALVES * HALVES
    shapes = [Shape(ROWS, LINE)] * totals + [Shape(ROWS, 4 * depth)] * HALVES + [Shape(depth, LINE)] * HALVES

    @intrinsic
    def configure(typing: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            TILES[way](Code(builder), shapes).configure()
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def release(typing: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            TILES[way](Code(builder), shapes).release()
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def multiply(
        typing: Any,
        outputs: Any,
        positions: Any,
        x: Any,
        weights: Any,
        offsets: Any,
        taps: Any,
        steps: Any,
        plane: Any,
        ahead: Any,
        sums: Any,
    ) -> Any:
        """Sums [PANEL, PANEL] of up to so many output channels and positions; each rounded up to `ROWS`.

        Args:
            x: words of the first position.
            weights: signed bytes [taps, steps, PANEL, depth, 4].
            offsets: for each tap, how far its first word is away.
            steps: of `depth` quads.
            plane: bytes from quad to quad.
            ahead: whether weights are asked for ahead of their use; the next words always are.
        """

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            outputs, positions, x, weights, offsets, taps, steps, plane, ahead, sums = args
            code = Code(builder)
            tiles = TILES[way](code, shapes)

            def block(high: int, wide: int) -> None:
                places = [(row, column) for row in range(high) for column in range(wide)]
                for row, column in places:
                    tiles.zero(HALVES * row + column)
                with code.loop(code.word(0), taps) as tap:
                    own = builder.add(weights, builder.mul(builder.mul(tap, steps), code.word(4 * depth * PANEL)))
                    near = builder.add(x, code.load(builder.add(offsets, builder.mul(tap, code.word(8))), I64))
                    with code.loop(code.word(0), steps) as step:
                        left = builder.add(own, builder.mul(step, code.word(4 * depth * PANEL)))
                        right = builder.add(near, builder.mul(builder.mul(step, plane), code.word(depth)))
                        with builder.if_then(builder.icmp_signed("!=", ahead, code.word(0))):
                            for line in range(0, 4 * depth * ROWS * high, LINE):
                                code.prefetch(left, AHEAD + line)
                        with builder.if_then(builder.icmp_signed("==", tap, code.word(0))):
                            for row in range(depth):
                                after = builder.add(right, builder.mul(plane, code.word(row)))
                                for column in range(wide):
                                    code.prefetch(after, LINE * (wide + column))
                        for column in range(wide):
                            tiles.load(totals + HALVES + column, builder.add(right, code.word(LINE * column)), plane)
                        for row in range(high):
                            place = builder.add(left, code.word(4 * depth * ROWS * row))
                            tiles.load(totals + row, place, 4 * depth)
                            for column in range(wide):
                                tiles.dot(HALVES * row + column, totals + row, totals + HALVES + column)
                for row, column in places:
                    place = builder.add(sums, code.word(4 * PANEL * ROWS * row + LINE * column))
                    tiles.store(HALVES * row + column, place, 4 * PANEL)

            def chosen(high: int) -> None:
                some = builder.icmp_signed("<=", positions, code.word(ROWS))
                with builder.if_else(some) as (then, otherwise):
                    with then:
                        block(high, 1)
                    with otherwise:
                        block(high, HALVES)

            with builder.if_else(builder.icmp_signed("<=", outputs, code.word(ROWS))) as (then, otherwise):
                with then:
                    chosen(1)
                with otherwise:
                    chosen(HALVES)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10), lower

    return configure, multiply, release


@inner
def requantize(sums: Any, rows: Any, form: Any, shifts: Any, multipliers: Any, zero: Any, target: Any) -> None:
    """As `requantize_rows`, of all columns, to rows `ROW` bytes apart."""
    if MASKS:
        signed = 1 if form == SIGNED_BYTES else 0
        requantize_pairs(sums, rows, signed, shifts, multipliers, np.int64(zero), target, np.int64(ROW))
    else:
        requantize_rows(sums, rows, PANEL, form, 0, 0, shifts, multipliers, np.float32(zero), target, ROW)


@process_cache
def tile_kernel(depth: int, way: str) -> Any:
    """The kernel for tiles of `depth` quads, by a row of `TILES`."""
    configure, multiply, release = _product(depth, way)

    @range_kernel
    def direct_tiles(
        source_at: Address,
        weights_at: Address,
        target: Address,
        offsets: Address,
        images: int,
        outputs: int,
        groups: int,
        quads: int,
        taps: int,
        steps: int,
        plane: int,
        pitch: int,
        lines: int,
        together: int,
        length: int,
        piece: int,
        shifts: Address,
        multipliers: Address,
        y_zero: Address,
        table: Address,
        form: int,
        scratch: Address,
        part: int,
        parts: int,
    ) -> None:
        """Multiply words with panels of output channels; results have `lines` lines of `length`, some computed
        together or in pieces. `images` counts groups too; `plane` is bytes from quad to quad, `pitch` words from line
        to line."""
        pieces = (length + piece - 1) // piece
        panels, blocks = (outputs + PANEL - 1) // PANEL, (lines + together - 1) // together * pieces
        sums = scratch + part * SCRATCH
        results = sums + 4 * PANEL * PANEL
        signed = 1 if form == SIGNED_BYTES else 0
        configure()
        first, last = share(images * panels * blocks, part, parts)
        for unit in range(first, last):
            block, panel, image = unit % blocks, unit // blocks % panels, unit // blocks // panels
            line, begin = block // pieces * together, block % pieces * piece
            rows, wide = min(together, lines - line), min(length - begin, piece)
            many, count = min(PANEL, outputs - panel * PANEL), (rows - 1) * pitch + wide
            own = image % groups * outputs + panel * PANEL
            weights = weights_at + (image % groups * panels + panel) * taps * steps * 4 * depth * PANEL
            source = source_at + image * quads * plane + 4 * (line * pitch + begin)
            for at in range(0, count, PANEL):
                left = min(PANEL, count - at)
                ahead = 1 if at == 0 else 0
                multiply(many, left, source + 4 * at, weights, offsets, taps, steps, plane, ahead, sums)
                requantize(
                    sums,
                    many,
                    form,
                    shifts + 4 * own,
                    multipliers + 4 * own,
                    load_zero_point(y_zero, signed),
                    results + at,
                )
            y = target + ((image * outputs + panel * PANEL) * lines + line) * length + begin
            for channel in range(many):
                found, kept = results + channel * ROW, y + channel * lines * length
                if rows == 1 and table != 0:
                    lookup_line(table, found, kept, wide)
                    continue
                if table != 0:
                    lookup_line(table, found, found, count)
                for row in range(rows):
                    copy_bytes(found + row * pitch, kept + row * length, wide)
        release()

    return direct_tiles


def fills_tiles(groups: int, outputs: int, quads: int) -> bool:
    """Whether zeros are at most half of the kernels, or there is one group; `outputs` and `quads` are of a group."""
    return groups == 1 or (outputs >= ROWS and quads >= DEPTHS[0])


def tile_depth(quads: int) -> int:
    """Quads of a tile, for so many in a tap."""
    least = -(-quads // -(-quads // DEPTHS[-1]))
    return next(depth for depth in DEPTHS if depth >= least)


class Phases(NamedTuple):
    """A padded plane [high, wide] in pieces: words whose row and column leave the same remainder of the strides.

    Attributes:
        steps: strides down and along.
        high, wide: of a piece.
    """

    steps: tuple[int, int]
    high: int
    wide: int

    @property
    def words(self) -> int:
        """Words of all pieces."""
        return math.prod(self.steps) * self.high * self.wide

    def offsets(self, axes: Sequence[Axis]) -> np.ndarray:
        """Byte offset of the first word of each tap."""
        down, along = self.steps
        y, x = (
            each.reshape(-1)
            for each in np.meshgrid(*(np.arange(axis.kernel) * axis.dilation for axis in axes), indexing="ij")
        )
        piece, place = y % down * along + x % along, y // down * self.wide + x // along
        return ((piece * self.high * self.wide + place) * 4).astype(np.int64)


def phases_of(axes: Sequence[Axis], padded: Sequence[int]) -> Phases:
    """Phases of a plane, by its axes down and along."""
    down, along = (axis.stride for axis in axes)
    return Phases((down, along), -(-padded[0] // down), -(-padded[1] // along))


def launch_tiles(
    step: Step,
    source: Buffer,
    weights: Buffer,
    sizes: tuple[int, int, int, int],
    phases: Phases,
    axes: Sequence[Axis],
    factors: dict[str, Any],
    way: str,
) -> Launch:
    """The launch of a convolution of words [images, quads, *phases].

    Args:
        sizes: images times groups, groups, output channels of a group, and quads.
        axes: down and along.
        factors: shifts, multipliers, zero point, table and form.
    """
    images, groups, outputs, quads = sizes
    lines, length = (axis.out for axis in axes)
    if phases.steps == (1, 1) and phases.wide == length:
        lines, length = 1, lines * length
    together = max(1, POSITIONS // phases.wide)
    pieces = -(-length // POSITIONS)
    piece, depth, taps = -(-length // pieces // ROWS) * ROWS, tile_depth(quads), axes[0].kernel * axes[1].kernel
    units = images * -(-outputs // PANEL) * -(-lines // together) * -(-length // piece)
    parts = step.parts(units, images * outputs * lines * length * taps * quads / 32)
    return Launch(
        tile_kernel(depth, way),
        parts,
        source_at=source,
        weights_at=weights,
        target=step.output(),
        offsets=step.constant_buffer(phases.offsets(axes)),
        images=images,
        outputs=outputs,
        groups=groups,
        quads=quads,
        taps=taps,
        steps=-(-quads // depth),
        plane=4 * phases.words,
        pitch=phases.wide,
        lines=lines,
        together=together if pieces == 1 else 1,
        length=length,
        piece=piece,
        **factors,
        scratch=step.scratch(parts * SCRATCH),
    )


def pack_tiles(kernels: np.ndarray, groups: int) -> np.ndarray:
    """Pack kernels [out, channels, ...] to int8 [groups, panels, taps, steps, PANEL, depth, 4], zero-padded."""
    out, channels = kernels.shape[:2]
    each, taps, quads = out // groups, math.prod(kernels.shape[2:]), -(-channels // 4)
    depth = tile_depth(quads)
    steps, panels = -(-quads // depth), -(-each // PANEL)
    rows = pack_rows_s8(kernels.reshape(out, channels, taps).transpose(0, 2, 1).reshape(-1, channels))
    whole = np.zeros((groups, panels * PANEL, taps, steps * depth, 4), np.int8)
    whole[:, :each, :, :quads] = rows.reshape(groups, each, taps, quads, 4)
    parted = whole.reshape(groups, panels, PANEL, taps, steps, depth, 4)
    return np.ascontiguousarray(parted.transpose(0, 1, 3, 4, 2, 5, 6))
