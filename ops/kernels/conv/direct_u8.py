"""Direct convolution of bytes: input positions are read in place and multiplied with panels of output channels.

A tile of sums has a row for each of some positions of a line and 32 output channels. Results of a few
lines are gathered by position, and transposed on their way out. For kernels with zero points in the middle, and strides
along a line up to 2.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.address import share, u8
from ....runtime.jit.isa import features
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Step
from ....runtime.simd.bytes import load_i32, store_bytes
from ....runtime.simd.dot4_u8s8 import PATH, dot
from ....runtime.simd.llvm_vector import I64, Code
from ....runtime.simd.memory import load_f32
from ....runtime.simd.vector import LANES, to_float
from ...rules.sliding_window import Axis
from ..byte_lookup import lookup_line
from ..gemm.byte_pairs.microkernel import QUAD_BYTES, row_tiles
from ..gemm.byte_pairs.saturation import FIELDS, WIDTH, order_quads, sort_quads
from ..gemm.microkernel_u8s8 import BYTE_PAIRS, ZERO, pack_rows_s8, store_sums
from ..gemm.register_tile import PANEL, Columns, Lines, accumulate, tiles_by_rows
from ..gemm.requantize import SIGNED_BYTES, load_zero_point, round_to_bytes

MAX_TILE_ROWS = 12 if "avx512f" in features() else 3
MAX_PAIR_ROWS = 28
"""Positions whose sums by pairs of bytes are stored before they are requantized, in tiles of a few."""
POSITIONS = 192
"""Output positions per unit of work."""
MIN_QUADS, MIN_PAIR_QUADS = 16, 1
"""Minimum number of quads per window for the sums to outweigh the transposition."""
MAX_EXTRA_WORK, MAX_EXTRA_PAIRS = 1.05, 1.4
"""Maximum ratio of padded work to that of im2col, which has no products by pairs of bytes."""
STRIDES = (1, 2)
_INT, _BYTES = ir.IntType(64), ir.VectorType(ir.IntType(8), LANES)


class PositionTile(NamedTuple):
    """Sums [rows, PANEL] of neighbouring positions.

    Attributes:
        x: words of the first position.
        panel: signed bytes [taps, quads, PANEL, 4].
        offsets: for each tap, how far its first word is away.
        plane: bytes from quad to quad.
    """

    x: Any
    panel: Any
    offsets: Any
    taps: Any
    quads: Any
    plane: Any
    sums: Any


def max_rows(path: str) -> int:
    """Positions that are multiplied at a time."""
    return MAX_PAIR_ROWS if path == BYTE_PAIRS else MAX_TILE_ROWS


@inner
def _pairs(
    rows: Any, x: Any, x_row: Any, panel: Any, offsets: Any, taps: Any, quads: Any, plane: Any, channels: Any, sums: Any
) -> None:
    """Sums [rows, PANEL] by pairs of bytes; `offsets` has the order of the quads of each half of the panel."""
    count = taps * quads
    for half in range(1 if channels <= WIDTH else 2):
        own, order = panel + half * count * QUAD_BYTES, offsets + half * 4 * (FIELDS + count)
        row = 0
        while row < rows:
            at = sums + 4 * (PANEL * row + WIDTH * half)
            row += row_tiles(rows - row, x + row * x_row, x_row, own, order + 4 * FIELDS, order, at)


def _tiles(stride: int, path: str) -> Any:
    def multiply_add(code: Code, total: Any, position: Any, column: Any) -> Any:
        return dot(code, path, total, position, column)

    def write(code: Code, rows: int, tile: PositionTile) -> None:
        build = code.builder

        def tap(index: Any, held: list[Any]) -> list[Any]:
            at, *totals = held
            begin = build.add(tile.x, code.load(build.add(tile.offsets, build.mul(index, code.word(8))), I64))
            lines = [build.add(begin, code.word(4 * stride * row)) for row in range(rows)]
            columns = Columns(at, range(2))
            found = accumulate(code, tile.quads, totals, Lines(lines, tile.plane), columns, multiply_add)
            return [build.add(at, build.mul(tile.quads, code.word(4 * PANEL))), *found]

        store_sums(code, code.repeat(tile.taps, [tile.panel, *[ZERO] * (2 * rows)], tap)[1:], tile.sums)

    tiles = tiles_by_rows(range(1, MAX_TILE_ROWS + 1), PositionTile, write)

    @inner
    def positions(
        rows: Any,
        x: Any,
        x_row: Any,
        panel: Any,
        offsets: Any,
        taps: Any,
        quads: Any,
        plane: Any,
        channels: Any,
        sums: Any,
    ) -> None:
        """Sums [rows, PANEL] of positions."""
        tiles(rows, x, panel, offsets, taps, quads, plane, sums)

    return positions


@intrinsic
def transposed(typing: Any, source: Any, step: Any, target: Any, line: Any) -> Any:
    """Transpose 16 rows of 16 bytes, `step` apart, to rows `line` apart."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, step, target, line = args

        def at(base: Any, gap: Any, index: int) -> Any:
            return builder.inttoptr(builder.add(base, builder.mul(gap, ir.Constant(_INT, index))), _BYTES.as_pointer())

        rows = [builder.load(at(source, step, index), align=1) for index in range(LANES)]
        words = ir.VectorType(ir.IntType(32), LANES)
        zipped = [ir.Constant(words, [half * 8 + k // 2 + k % 2 * LANES for k in range(LANES)]) for half in range(2)]
        for _ in range(4):
            rows = [
                builder.shuffle_vector(rows[index // 2], rows[index // 2 + 8], zipped[index % 2])
                for index in range(LANES)
            ]
        for index, row in enumerate(rows):
            builder.store(row, at(target, line, index), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), lower


@inner
def _requantize(sums: Any, rows: Any, form: Any, shifts: Any, multipliers: Any, zero: Any, target: Any) -> None:
    """Requantize sums of positions to bytes [rows, PANEL]."""
    low, high = (np.float32(-128), np.float32(127)) if form == SIGNED_BYTES else (np.float32(0), np.float32(255))
    for half in range(2):
        shift, factor = load_i32(shifts + 64 * half), load_f32(multipliers + 64 * half)
        for row in range(rows):
            line = to_float(load_i32(sums + 128 * row + 64 * half) + shift)
            store_bytes(target + PANEL * row + LANES * half, round_to_bytes(line * factor, zero, low, high), 0xFFFF)


@inner
def _store_lines(source: Any, count: Any, channels: Any, y: Any, line: Any, corner: Any) -> None:
    """Transpose bytes [count, PANEL] of positions to lines per channel; `corner` is scratch of 256 bytes."""
    for begin in range(0, count, LANES):
        wide = min(LANES, count - begin)
        for first in range(0, channels, LANES):
            place, target = source + PANEL * begin + first, y + first * line + begin
            if wide == LANES and channels - first >= LANES:
                transposed(place, np.int64(PANEL), target, line)
                continue
            transposed(place, np.int64(PANEL), corner, np.int64(LANES))
            for channel in range(min(LANES, channels - first)):
                for j in range(wide):
                    u8(target + channel * line)[j] = u8(corner)[channel * LANES + j]


@process_cache
def direct_kernel(stride: int, path: str) -> Any:
    """The kernel for a stride along lines and a dot4 implementation."""
    tiles, most = _pairs if path == BYTE_PAIRS else _tiles(stride, path), max_rows(path)

    @range_kernel
    def direct_u8(
        source_at: Address,
        weights_at: Address,
        target: Address,
        offsets: Address,
        offsets_bytes: int,
        images: int,
        groups: int,
        outputs: int,
        quads: int,
        taps: int,
        plane: int,
        depth: int,
        height: int,
        together: int,
        length: int,
        pieces: int,
        plane_step: int,
        line_step: int,
        shifts: Address,
        multipliers: Address,
        y_zero: Address,
        table: Address,
        form: int,
        scratch: Address,
        part: int,
        parts: int,
    ) -> None:
        """Multiply int32 words (four channels) with panels: `plane` is bytes from quad to quad; results have `depth`
        planes of `height` lines, computed in pieces; steps are in words."""
        lines = depth * height
        panels, blocks = (outputs + PANEL - 1) // PANEL, (lines + together - 1) // together * pieces
        sums = scratch + part * (PANEL * (POSITIONS + 4 * most) + 256)
        gathered = sums + 4 * PANEL * most
        zero = np.float32(load_zero_point(y_zero, 1 if form == SIGNED_BYTES else 0))
        first, last = share(images * groups * panels * blocks, part, parts)
        for unit in range(first, last):
            block, panel, image = unit % blocks, unit // blocks % panels, unit // blocks // panels
            begin_line, piece = block // pieces * together, block % pieces
            begin, end = length * piece // pieces, length * (piece + 1) // pieces
            own = (image % groups) * outputs + panel * PANEL
            weights = weights_at + (image % groups * panels + panel) * taps * quads * 4 * PANEL
            places = offsets + (image % groups * panels + panel) * offsets_bytes
            channels = min(PANEL, outputs - panel * PANEL)
            count, many = 0, (end - begin + most - 1) // most
            for line in range(begin_line, min(lines, begin_line + together)):
                source = (
                    source_at + image * quads * plane + 4 * (line // height * plane_step + line % height * line_step)
                )
                for index in range(many):
                    at = begin + (end - begin) * index // many
                    rows = begin + (end - begin) * (index + 1) // many - at
                    x = source + 4 * stride * at
                    tiles(rows, x, 4 * stride, weights, places, taps, quads, plane, channels, sums)
                    _requantize(
                        sums, rows, form, shifts + 4 * own, multipliers + 4 * own, zero, gathered + PANEL * count
                    )
                    count += rows
            if table != 0:
                lookup_line(table, gathered, gathered, PANEL * count)
            y = target + (image // groups * groups * outputs + own) * lines * length + begin_line * length + begin
            _store_lines(gathered, count, channels, y, lines * length, gathered + PANEL * POSITIONS)

    return direct_u8


KERNELS = {stride: direct_kernel(stride, PATH) for stride in STRIDES}
COLUMNS, LEAST_QUADS, EXTRA_WORK = (
    (WIDTH, MIN_PAIR_QUADS, MAX_EXTRA_PAIRS) if PATH == BYTE_PAIRS else (PANEL, MIN_QUADS, MAX_EXTRA_WORK)
)
"""Output channels that are computed together, and the bounds of this processor."""


def is_faster(outputs: int, quads: int, lengths: Sequence[int]) -> bool:
    """Whether panels of output channels are fuller than panels of positions [depth, height, width], and sums are long;
    `quads` counts all taps."""
    positions = math.prod(lengths)
    return (
        quads >= LEAST_QUADS
        and -(-outputs // COLUMNS) * COLUMNS * positions <= -(-positions // PANEL) * PANEL * outputs * EXTRA_WORK
    )


class DirectShape(NamedTuple):
    """A convolution of int32 words [images, groups, quads, *padded].

    Attributes:
        outputs: output channels of a group.
        padded: lengths of the padded input.
    """

    images: int
    groups: int
    outputs: int
    quads: int
    padded: Sequence[int]
    axes: Sequence[Axis]


def launch_direct(
    step: Step,
    source: Buffer,
    weights: Buffer,
    y: Buffer,
    shape: DirectShape,
    factors: dict[str, Any],
    order: np.ndarray | None = None,
    path: str = PATH,
) -> Launch:
    """The launch of a convolution; `factors`: shifts, multipliers, zero point, table and form; `order`: of the quads of
    panels, as `order_output_panels` gives it, for pairs of bytes."""
    images, groups, outputs, quads, padded, axes = shape
    (_, high, wide), taps = padded, math.prod(axis.kernel for axis in axes)
    places = np.stack(
        np.meshgrid(*(np.arange(axis.kernel) * axis.dilation for axis in axes), indexing="ij"), -1
    ).reshape(-1, 3)
    offsets = (places @ np.array([high * wide, wide, 1]) * 4).astype(np.int64)
    if order is not None:
        offsets = quad_offsets(order, offsets, quads, 4 * math.prod(padded))
    depth, height, length = (axis.out for axis in axes)
    if taps == 1 and all(axis.stride == 1 for axis in axes) and math.prod(padded) == depth * height * length:
        depth, height, length = 1, 1, depth * height * length
    together, pieces = max(1, POSITIONS // length), -(-length // POSITIONS)
    units = images * groups * -(-outputs // PANEL) * -(-depth * height // together) * pieces
    parts = step.parts(units, y.count * quads * taps / 8)
    return Launch(
        direct_kernel(axes[2].stride, path),
        parts,
        source_at=source,
        weights_at=weights,
        target=y,
        offsets=step.constant_buffer(offsets),
        offsets_bytes=0 if order is None else 2 * 4 * order.shape[1],
        images=images,
        groups=groups,
        outputs=outputs,
        quads=quads,
        taps=taps,
        plane=4 * math.prod(padded),
        depth=depth,
        height=height,
        together=together,
        length=length,
        pieces=pieces,
        plane_step=axes[0].stride * high * wide,
        line_step=axes[1].stride * wide,
        **factors,
        scratch=step.scratch(parts * (PANEL * (POSITIONS + 4 * max_rows(path)) + 256)),
    )


def quad_offsets(order: np.ndarray, taps: np.ndarray, quads: int, plane: int) -> np.ndarray:
    """The counts of `order_output_panels`, and for each quad its bytes from a position: those of its tap, and `plane`
    for each quad of channels before it."""
    places = (taps[:, None] + plane * np.arange(quads)).reshape(-1)
    return np.concatenate([order[:, :FIELDS], places[order[:, FIELDS:]].astype(np.int32)], 1)


def order_output_panels(kernels: np.ndarray, groups: int) -> np.ndarray:
    """Counts and orders of the quads of `_halves`: int32 [groups * halves, FIELDS + taps * channels / 4]."""
    order, counts = order_quads(_halves(kernels, groups))
    return np.concatenate([counts, order], 1)


def pack_sorted_panels(kernels: np.ndarray, groups: int) -> np.ndarray:
    """As `pack_output_panels`, in halves of 16 channels, each with its quads in the order of `order_output_panels`."""
    halves = _halves(kernels, groups)
    return sort_quads(halves, order_quads(halves).order)


def _halves(kernels: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [out, channels, ...] as int8 [groups * halves, taps * channels / 4, WIDTH, 4]."""
    whole = pack_output_panels(kernels, groups)
    halves = whole.reshape(-1, whole.shape[2], 2, WIDTH, 4)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3, 4)).reshape(-1, whole.shape[2], WIDTH, 4)


def pack_output_panels(kernels: np.ndarray, groups: int) -> np.ndarray:
    """Pack kernels [out, channels, ...] to int8 [groups, panels, taps, channels / 4, PANEL, 4], zero-padded."""
    out, channels = kernels.shape[:2]
    each, taps = out // groups, int(np.prod(kernels.shape[2:]))
    rows = pack_rows_s8(kernels.reshape(out, channels, taps).transpose(0, 2, 1).reshape(-1, channels))
    whole = np.zeros((groups, -(-each // PANEL) * PANEL, rows.size // out // 4, 4), np.int8)
    whole[:, :each] = rows.reshape(groups, each, -1, 4)
    return np.ascontiguousarray(whole.reshape(groups, -1, PANEL, whole.shape[2], 4).transpose(0, 1, 3, 2, 4))
