"""Convolution of bytes without panels of windows: neighbouring positions, read where `interleaved` put them, meet panels of output channels.

A tile of sums has a row for each of up to `MOST` positions of a line and 32 output channels. Results of a few lines are gathered by position, and
transposed on their way out. For kernels with zero points in the middle, and strides along a line up to 2.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ...runtime.compiler import intrinsic, types
from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Step
from ...runtime.native import share, u8
from ...runtime.paths import features
from ...runtime.simd import LANES, to_float
from ..math.lane_kernel import load_single
from ..nn.window import Axis
from .byte_dot_kernel import PATH, WORDS, dot
from .byte_kernel import PANEL, byte_rows, spread
from .byte_lane_kernel import load_words, store_bytes
from .result_kernel import SIGNED_BYTES, byte_at, byte_lanes

MOST = 12 if "avx512f" in features() else 3
POSITIONS = 192
"""That a unit of work computes, of one panel."""
LEAST = 16
"""Fours from which the sums of a tile outweigh transposing it."""
SLACK = 1.05
"""How much more work is taken for the sake of reading windows where they are."""
STRIDES = (1, 2)
_INT, _BYTES = ir.IntType(64), ir.VectorType(ir.IntType(8), LANES)


def _tile(rows: int, stride: int, path: str) -> Any:
    """Sums [rows, PANEL] of neighbouring positions.

    Its arguments: words of the first position; panel of signed bytes [taps, fours, PANEL, 4]; for each tap, how far its first word is away; taps and
    fours; bytes from four to four; sums.
    """

    @intrinsic
    def tile(typing: Any, x: Any, panel: Any, offsets: Any, taps: Any, fours: Any, plane: Any, sums: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            x, panel, offsets, taps, fours, plane, target = args
            word = lambda value: ir.Constant(_INT, value)  # noqa: E731

            def load(address: Any, offset: int, kind: Any) -> Any:
                return builder.load(builder.inttoptr(builder.add(address, word(offset)), kind.as_pointer()), align=1)

            before, outer, loop, last, after = builder.block, *(builder.append_basic_block(name) for name in ("tap", "fours", "next", "done"))
            builder.branch(outer)
            builder.position_at_end(outer)
            tap, at, *starts = builder.phi(_INT), builder.phi(_INT), *(builder.phi(WORDS) for _ in range(2 * rows))
            for phi, value in zip((tap, at, *starts), (word(0), panel, *[ir.Constant(WORDS, [0] * LANES)] * (2 * rows)), strict=True):
                phi.add_incoming(value, before)
            begin = builder.add(x, load(builder.add(offsets, builder.mul(tap, word(8))), 0, _INT))
            builder.branch(loop)
            builder.position_at_end(loop)
            four, place, own, *found = *(builder.phi(_INT) for _ in range(3)), *(builder.phi(WORDS) for _ in range(2 * rows))
            for phi, value in zip((four, place, own, *found), (word(0), begin, at, *starts), strict=True):
                phi.add_incoming(value, outer)
            columns = [load(own, 64 * half, WORDS) for half in range(2)]
            made = []
            for row in range(rows):
                position = spread(builder, load(place, 4 * stride * row, ir.IntType(32)))
                made += [dot(builder, path, found[2 * row + half], position, columns[half]) for half in range(2)]
            steps = builder.add(four, word(1)), builder.add(place, plane), builder.add(own, word(4 * PANEL))
            for phi, value in zip((four, place, own, *found), (*steps, *made), strict=True):
                phi.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", steps[0], fours), loop, last)
            builder.position_at_end(last)
            following = builder.add(tap, word(1))
            for phi, value in zip((tap, at, *starts), (following, steps[2], *made), strict=True):
                phi.add_incoming(value, last)
            builder.cbranch(builder.icmp_signed("<", following, taps), outer, after)
            builder.position_at_end(after)
            for index, value in enumerate(made):
                builder.store(value, builder.inttoptr(builder.add(target, word(64 * index)), WORDS.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), lower

    return tile


@intrinsic
def transposed(typing: Any, source: Any, step: Any, target: Any, line: Any) -> Any:
    """Sixteen rows of sixteen bytes, `step` apart, as columns `line` apart."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, step, target, line = args

        def at(base: Any, gap: Any, index: int) -> Any:
            return builder.inttoptr(builder.add(base, builder.mul(gap, ir.Constant(_INT, index))), _BYTES.as_pointer())

        rows = [builder.load(at(source, step, index), align=1) for index in range(LANES)]
        words = ir.VectorType(ir.IntType(32), LANES)
        zipped = [ir.Constant(words, [half * 8 + k // 2 + k % 2 * LANES for k in range(LANES)]) for half in range(2)]
        for _ in range(4):
            rows = [builder.shuffle_vector(rows[index // 2], rows[index // 2 + 8], zipped[index % 2]) for index in range(LANES)]
        for index, row in enumerate(rows):
            builder.store(row, at(target, line, index), align=1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), lower


@inner
def _finished(sums: Any, rows: Any, form: Any, shifts: Any, multipliers: Any, zero: Any, target: Any) -> None:
    """Sums of positions as bytes [rows, PANEL]."""
    low, high = (np.float32(-128), np.float32(127)) if form == SIGNED_BYTES else (np.float32(0), np.float32(255))
    for half in range(2):
        shift, factor = load_words(shifts + 64 * half), load_single(multipliers + 64 * half)
        for row in range(rows):
            line = to_float(load_words(sums + 128 * row + 64 * half) + shift)
            store_bytes(target + PANEL * row + LANES * half, byte_lanes(line * factor, zero, low, high), 0xFFFF)


@inner
def _out(source: Any, count: Any, channels: Any, y: Any, line: Any, corner: Any) -> None:
    """Bytes [count, PANEL] of positions as lines of channels; `corner` is room for 256 bytes."""
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


def direct_by(stride: int, path: str) -> Any:
    """The kernel for a stride along lines and a row of `INTEGERS`."""
    tiles = [_tile(rows, stride, path) for rows in range(1, MOST + 1)]
    pick = _picker(tiles)

    @range_kernel
    def convolved_directly(args: Any, part: Any, parts: Any) -> None:
        """Words, panels, results, offsets of taps; images, groups, outputs of a group, fours, taps; bytes from four to four; lines of a plane of the
        results, those together, their length, pieces of it, words from plane to plane and from line to line; shifts, multipliers, zero point, form;
        scratch."""
        offsets, groups, outputs, fours, taps, plane = args[3], args[5], args[6], args[7], args[8], args[9]
        lines, together, length, pieces, form = args[10] * args[11], args[12], args[13], args[14], args[20]
        panels, blocks = (outputs + PANEL - 1) // PANEL, (lines + together - 1) // together * pieces
        sums = args[21] + part * (PANEL * (POSITIONS + 4 * MOST) + 256)
        gathered = sums + 4 * PANEL * MOST
        zero = np.float32(byte_at(args[19], 1 if form == SIGNED_BYTES else 0))
        first, last = share(args[4] * groups * panels * blocks, part, parts)
        for unit in range(first, last):
            block, panel, image = unit % blocks, unit // blocks % panels, unit // blocks // panels
            begin_line, piece = block // pieces * together, block % pieces
            begin, end = length * piece // pieces, length * (piece + 1) // pieces
            own = (image % groups) * outputs + panel * PANEL
            weights = args[1] + (image % groups * panels + panel) * taps * fours * 4 * PANEL
            count, many = 0, (end - begin + MOST - 1) // MOST
            for line in range(begin_line, min(lines, begin_line + together)):
                source = args[0] + image * fours * plane + 4 * (line // args[11] * args[15] + line % args[11] * args[16])
                for index in range(many):
                    at = begin + (end - begin) * index // many
                    rows = begin + (end - begin) * (index + 1) // many - at
                    pick(rows, source + 4 * stride * at, weights, offsets, taps, fours, plane, sums)
                    _finished(sums, rows, form, args[17] + 4 * own, args[18] + 4 * own, zero, gathered + PANEL * count)
                    count += rows
            y = args[2] + (image // groups * groups * outputs + own) * lines * length + begin_line * length + begin
            _out(gathered, count, min(PANEL, outputs - panel * PANEL), y, lines * length, gathered + PANEL * POSITIONS)

    return convolved_directly


def _picker(tiles: list[Any]) -> Any:
    """Calls the tile of so many rows."""
    if len(tiles) == 1:
        only = tiles[0]

        @inner
        def alone(rows: Any, x: Any, panel: Any, offsets: Any, taps: Any, fours: Any, plane: Any, sums: Any) -> None:
            only(x, panel, offsets, taps, fours, plane, sums)

        return alone
    half = len(tiles) // 2
    low, high = _picker(tiles[:half]), _picker(tiles[half:])

    @inner
    def picked(rows: Any, x: Any, panel: Any, offsets: Any, taps: Any, fours: Any, plane: Any, sums: Any) -> None:
        if rows <= half:
            low(rows, x, panel, offsets, taps, fours, plane, sums)
        else:
            high(rows - half, x, panel, offsets, taps, fours, plane, sums)

    return picked


KERNELS = {stride: direct_by(stride, PATH) for stride in STRIDES}


def pays(outputs: int, fours: int, lengths: Sequence[int]) -> bool:
    """Whether output channels fill panels better than positions [depth, height, width] would, and sums are long; `fours` are of all taps."""
    positions = math.prod(lengths)
    return fours >= LEAST and -(-outputs // PANEL) * PANEL * positions <= -(-positions // PANEL) * PANEL * outputs * SLACK


def directly(
    step: Step, source: Buffer, weights: Buffer, y: Buffer, images: int, groups: int, outputs: int, fours: int, padded: Sequence[int],
    axes: Sequence[Axis], factors: tuple[Any, ...], kernels: dict[int, Any] = KERNELS,
) -> Launch:
    """The launch for words [images, groups, fours, *padded]; `factors` are shifts, multipliers, zero point and form."""
    (_, high, wide), taps = padded, math.prod(axis.kernel for axis in axes)
    places = np.stack(np.meshgrid(*(np.arange(axis.kernel) * axis.dilation for axis in axes), indexing="ij"), -1).reshape(-1, 3)
    offsets = (places @ np.array([high * wide, wide, 1]) * 4).astype(np.int64)
    depth, height, length = (axis.out for axis in axes)
    if taps == 1 and all(axis.stride == 1 for axis in axes) and math.prod(padded) == depth * height * length:
        depth, height, length = 1, 1, depth * height * length
    together, pieces = max(1, POSITIONS // length), -(-length // POSITIONS)
    units = images * groups * -(-outputs // PANEL) * -(-depth * height // together) * pieces
    parts = step.parts(units, y.count * fours * taps / 8)
    arguments = (
        source, weights, y, step.held(offsets), images, groups, outputs, fours, taps, 4 * math.prod(padded), depth, height, together, length, pieces,
        axes[0].stride * high * wide, axes[1].stride * wide, *factors, step.scratch(parts * (PANEL * (POSITIONS + 4 * MOST) + 256)),
    )
    return Launch(kernels[axes[2].stride], arguments, parts)


def panels_of_outputs(kernels: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [out, channels, ...] as signed bytes [groups, panels, taps, channels / 4, PANEL, 4], zeros where there is nothing."""
    out, channels = kernels.shape[:2]
    each, taps = out // groups, int(np.prod(kernels.shape[2:]))
    rows = byte_rows(kernels.reshape(out, channels, taps).transpose(0, 2, 1).reshape(-1, channels))
    whole = np.zeros((groups, -(-each // PANEL) * PANEL, rows.size // out // 4, 4), np.int8)
    whole[:, :each] = rows.reshape(groups, each, -1, 4)
    return np.ascontiguousarray(whole.reshape(groups, -1, PANEL, whole.shape[2], 4).transpose(0, 1, 3, 2, 4))
