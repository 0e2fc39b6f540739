"""Convolution and pooling vectorized over 16 channels, for short rows, large windows and long strides.

Input channels are transposed into the lanes of vectors, outputs are computed from full vectors and transposed back.
NCHW16c layout needs no transpose.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, share
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ....runtime.simd.llvm_vector import Code
from ....runtime.simd.memory import load_f32, store_f32
from ....runtime.simd.transpose import load_columns, store_columns
from ....runtime.simd.vector import LANES, any_lane, no_lane, splat
from ..gemm.epilogue import Epilogue, apply_epilogue
from ..gemm.microkernel_f32 import WIDE
from ..gemm.register_tile import FLOATS, VECTOR, fma, limit_and_store, tiles_by_rows
from ..pool.pool_2x2_3x3 import larger, largest, seen, summed
from ..pool.problem import Pool
from .problem import Convolution, ConvPlan, Problem

BAND = 4096
"""Maximum number of input vectors of a band."""
SHORT_ROW = 12
"""Row length in outputs up to which vectors along the row would be mostly empty."""
TILES = (8, 7, 4, 1) if WIDE else (7, 4, 1)
"""Outputs of a row that are summed at a time; results of a last tile that overlaps the one before are written twice."""


@inner
def load_channels(
    source: Any, plane: Any, channels: Any, width: Any, count: Any, target: Any, wide: Any, transposed: Any
) -> Any:
    """Transpose the first `count` elements of up to 16 planes to vectors in rows of `wide`; returns whether one is
    NaN."""
    x, line, found = 0, target, no_lane()
    for at in range(0, count, LANES):
        some = min(LANES, count - at)
        load_columns(source + 4 * at, plane, transposed, VECTOR, channels, (1 << some) - 1)
        for index in range(some):
            value = load_f32(transposed + VECTOR * index)
            found = found | (value != value)
            store_f32(line + VECTOR * x, value)
            x += 1
            if x == width:
                x, line = 0, line + VECTOR * wide
    return any_lane(found)


@inner
def load_blocks(source: Any, width: Any, rows: Any, target: Any, wide: Any) -> None:
    """Copy rows of `width` vectors to rows of `wide`."""
    for row in range(rows):
        line, place = source + VECTOR * width * row, target + VECTOR * wide * row
        for at in range(0, VECTOR * width, VECTOR):
            store_f32(place + at, load_f32(line + at))


@inner
def store_channels(results: Any, target: Any, plane: Any, channels: Any, count: Any) -> None:
    """Transpose `count` vectors back to up to 16 planes."""
    for at in range(0, count, LANES):
        store_columns(
            results + VECTOR * at, VECTOR, target + 4 * at, plane, channels, (1 << min(LANES, count - at)) - 1
        )


@inner
def visible_taps(begin: Any, height: Any, kernel: Any, dilation: Any) -> Any:
    """First tap inside the plane of a window at row `begin`, and the number of taps inside."""
    first = (dilation - 1 - begin) // dilation if begin < 0 else 0
    last = min(kernel, (height - 1 - begin) // dilation + 1) if begin < height else 0
    return first, max(0, last - first)


@inner
def input_rows(begin: Any, rows: Any, stride: Any, reach: Any, height: Any) -> Any:
    """First input row that windows from row `begin` read, and the number of rows."""
    first = min(height, max(0, begin))
    return first, max(0, min(height, begin + (rows - 1) * stride + reach) - first)


@inner
def _scratch_vectors(wide: Any, read: Any, band: Any, out_width: Any) -> Any:
    """Scratch vectors of a part: input and results, each with the overhang of the transpose."""
    return wide * read + band * out_width + 2 * LANES


@inner
def pool_scratch_vectors(wide: Any, read: Any, band: Any, out_width: Any) -> Any:
    """Like `_scratch_vectors`, plus a reduced row and the factors of a row; vectors are processed four at a time."""
    return wide * (read + 1) + 12 + band * out_width + out_width // LANES + 1 + 2 * LANES


class RowTile(NamedTuple):
    """Outputs of a row, `step` input bytes apart."""

    line: Any
    step: Any
    weights: Any
    taps_y: Any
    taps_x: Any
    row: Any
    tap: Any
    bias: Any
    results: Any
    low: float
    high: float


def _sum_outputs(code: Code, count: int, tile: RowTile) -> None:
    """Sum `count` outputs of a row."""
    build = code.builder

    def taps_of_row(down: Any, sums: list[Any]) -> list[Any]:
        first = build.add(tile.line, build.mul(down, tile.row))

        def one(across: Any, held: list[Any]) -> list[Any]:
            at = build.add(first, build.mul(across, tile.tap))
            place = build.mul(build.add(build.mul(down, tile.taps_x), across), code.word(VECTOR))
            factor = code.load(build.add(tile.weights, place), FLOATS)
            elements = [
                code.load(build.add(at, build.mul(tile.step, code.word(index))), FLOATS) for index in range(count)
            ]
            return [fma(code, total, element, factor) for total, element in zip(held, elements, strict=True)]

        return code.repeat(tile.taps_x, sums, one)

    found = code.repeat(tile.taps_y, [code.load(tile.bias, FLOATS)] * count, taps_of_row)
    limit_and_store(code, found, range(1), (tile.results, code.word(VECTOR), code.word(0)), tile.low, tile.high)


_tiles = tiles_by_rows(TILES, RowTile, _sum_outputs)


@range_kernel
def convolve_channels(
    conv: Convolution, wide: int, read_rows: int, tile: int, blocks_in: int, blocks_out: int, part: int, parts: int
) -> None:
    """Depthwise convolution. Kernels are [channels / 16, taps, 16], biases padded; slices are rows of a band, for which
    `read_rows` rows of `wide` input vectors are read; a tile has `tile` outputs."""
    images, channels, height, width = conv.images, conv.groups, conv.height, conv.width
    out_height, out_width, kernel_y, kernel_x = conv.out_height, conv.out_width, conv.kernel_y, conv.kernel_x
    stride_y, stride_x, dilation_y, dilation_x = conv.stride_y, conv.stride_x, conv.dilation_y, conv.dilation_x
    pad_y, pad_x = conv.pad_y, conv.pad_x
    low, high, band = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high), conv.slices
    lines = conv.scratch + part * VECTOR * _scratch_vectors(wide, read_rows, band, out_width)
    transposed = lines + VECTOR * wide * read_rows
    results, plane, out_plane = transposed + VECTOR * LANES, 4 * height * width, 4 * out_height * out_width
    for j in range(wide * read_rows):
        store_f32(lines + VECTOR * j, splat(np.float32(0)))
    blocks, bands = (channels + LANES - 1) // LANES, (out_height + band - 1) // band
    first, last = share(images * blocks * bands, part, parts)
    row, tap, step = VECTOR * dilation_y * wide, VECTOR * dilation_x, VECTOR * stride_x
    for unit in range(first, last):
        block, begin = unit // bands % blocks, unit % bands * band
        start, rows, some = (
            unit // bands // blocks * channels + block * LANES,
            min(band, out_height - begin),
            min(LANES, channels - block * LANES),
        )
        top, read = input_rows(begin * stride_y - pad_y, rows, stride_y, (kernel_y - 1) * dilation_y + 1, height)
        padded, base = lines + VECTOR * pad_x, start * out_plane + 4 * begin * out_width
        if blocks_in != 0:
            load_blocks(conv.source + start * plane + VECTOR * top * width, width, read, padded, wide)
        else:
            source = conv.source + start * plane + 4 * top * width
            load_channels(source, plane, some, width, read * width, padded, wide, transposed)
        made = results
        if blocks_out != 0:
            base = start * out_plane + VECTOR * begin * out_width
            made = conv.target + base
        bias, kernels = conv.bias + VECTOR * block, conv.weights + VECTOR * block * kernel_y * kernel_x
        for index in range(rows):
            at = (begin + index) * stride_y - pad_y
            skipped, taps = visible_taps(at, height, kernel_y, dilation_y)
            line, weights = (
                lines + VECTOR * wide * (at + skipped * dilation_y - top),
                kernels + VECTOR * skipped * kernel_x,
            )
            for x in range(0, out_width, tile):
                column = min(x, out_width - tile)
                source, target = line + step * column, made + VECTOR * (index * out_width + column)
                _tiles(tile, source, step, weights, taps, kernel_x, row, tap, bias, target, low, high)
        if blocks_out != 0:
            apply_epilogue(conv.epilogue, conv.target, base, 0, 1, LANES * rows * out_width)
        else:
            store_channels(results, conv.target + base, out_plane, some, rows * out_width)
            apply_epilogue(conv.epilogue, conv.target, base, out_plane, some, rows * out_width)


def _pooling(average: bool) -> Any:
    nothing = np.float32(0 if average else -math.inf)

    def reducer(reduced: Any) -> Any:
        @inner
        def four(source: Any, step: Any, count: Any, tap: Any, target: Any) -> None:
            """Four vectors, each of `count` that are joined."""
            a, b, c, d = splat(nothing), splat(nothing), splat(nothing), splat(nothing)
            for index in range(count):
                at = source + tap * index
                a, b = reduced(a, load_f32(at)), reduced(b, load_f32(at + step))
                c, d = reduced(c, load_f32(at + 2 * step)), reduced(d, load_f32(at + 3 * step))
            store_f32(target, a)
            store_f32(target + VECTOR, b)
            store_f32(target + 2 * VECTOR, c)
            store_f32(target + 3 * VECTOR, d)

        return four

    plain, nan_aware = reducer(summed if average else larger), reducer(largest)

    @range_kernel
    def pool_channels(pool: Pool, read_rows: int, part: int, parts: int) -> None:
        """Pooling of vectors; `read_rows` is the number of input rows of a band."""
        height, width, out_height, out_width = pool.height, pool.width, pool.out_height, pool.out_width
        kernel_y, kernel_x = pool.kernel_y, pool.kernel_x
        stride_y, dilation_y, pad_y, pad_x = pool.stride_y, pool.dilation_y, pool.pad_y, pool.pad_x
        padded = pool.padded
        wide, band, step, tap = pool.wide, pool.band, VECTOR * pool.stride_x, VECTOR * pool.dilation_x
        plane, out_plane = 4 * height * width, 4 * out_height * out_width
        lines = pool.scratch + part * VECTOR * pool_scratch_vectors(wide, read_rows, band, out_width)
        reduced = lines + VECTOR * (wide * read_rows + 4)
        transposed = reduced + VECTOR * (wide + 4)
        factors = transposed + VECTOR * LANES
        results, counted = factors + 4 * LANES * ((out_width + LANES - 1) // LANES), -1
        for j in range(wide * (read_rows + 1) + 8):
            store_f32(lines + VECTOR * j, splat(nothing))
        blocks, bands = (pool.planes + LANES - 1) // LANES, (out_height + band - 1) // band
        first, last = share(blocks * bands, part, parts)
        for unit in range(first, last):
            block, begin = unit // bands, unit % bands * band
            rows, some = min(band, out_height - begin), min(LANES, pool.planes - block * LANES)
            top, read = input_rows(begin * stride_y - pad_y, rows, stride_y, (kernel_y - 1) * dilation_y + 1, height)
            source = pool.x + block * LANES * plane + 4 * top * width
            has_nan = load_channels(source, plane, some, width, read * width, lines + VECTOR * pad_x, wide, transposed)
            for index in range(rows):
                at = (begin + index) * stride_y - pad_y
                skipped, taps = visible_taps(at, height, kernel_y, dilation_y)
                line, below = lines + VECTOR * wide * (at + skipped * dilation_y - top), VECTOR * dilation_y * wide
                target = results + VECTOR * index * out_width
                for x in range(0, wide, 4):
                    if not average and has_nan:
                        nan_aware(line + VECTOR * x, VECTOR, taps, below, reduced + VECTOR * x)
                    else:
                        plain(line + VECTOR * x, VECTOR, taps, below, reduced + VECTOR * x)
                for x in range(0, out_width, 4):
                    if not average and has_nan:
                        nan_aware(reduced + step * x, step, kernel_x, tap, target + VECTOR * x)
                    else:
                        plain(reduced + step * x, step, kernel_x, tap, target + VECTOR * x)
                if average:
                    high = seen(begin + index, (height, kernel_y, stride_y, dilation_y, pad_y, pool.end_y), padded)
                    if high != counted:
                        counted = high
                        for x in range(out_width):
                            count = high * seen(
                                x, (width, kernel_x, pool.stride_x, pool.dilation_x, pad_x, pool.end_x), padded
                            )
                            f32(factors)[x] = np.float32(1) / np.float32(count)
                    for x in range(out_width):
                        store_f32(target + VECTOR * x, load_f32(target + VECTOR * x) * f32(factors)[x])
            store_channels(
                results, pool.y + block * LANES * out_plane + 4 * begin * out_width, out_plane, some, rows * out_width
            )

    return pool_channels


POOL_KERNELS = {average: _pooling(average) for average in (False, True)}
"""Pooling kernels: average (True) or maximum (False)."""


def _band(wide: int, out: Sequence[int], stride: int, reach: int) -> tuple[int, int]:
    """Output and input rows of a band, at least one output row."""
    rows = max(1, min(out[0], (BAND // wide - reach) // stride + 1))
    return rows, (rows - 1) * stride + reach


def pack_lanes(w: np.ndarray) -> np.ndarray:
    """Kernels [channels, 1, taps...] as [channels / 16, taps, 16]."""
    channels = len(w)
    results = np.zeros((-(-channels // LANES) * LANES, w[0].size), w.dtype)
    results[:channels] = w.reshape(channels, -1)
    return results.reshape(-1, LANES, results.shape[1]).transpose(0, 2, 1)


def _is_faster(geometry: Sequence[int]) -> bool:
    """Whether this is estimated to be faster than vectors along rows."""
    return geometry[7] * geometry[8] > 9 or geometry[5] <= SHORT_ROW


def plan_channels_vectorized(problem: Problem) -> ConvPlan | None:
    """Launch of a depthwise convolution over one or two axes; None if vectors along rows are faster, which need plain
    layout."""
    geometry, step = problem.geometry, problem.step
    if not (
        (WIDE or problem.blocked)
        and problem.constant
        and problem.x.count
        and problem.channels == problem.outputs == 1
        and problem.groups >= LANES
    ):
        return None
    if not problem.planar or not problem.positions:
        return None
    if not (problem.blocked or _is_faster(geometry)):
        return None
    width, out_width, kernel_y, kernel_x = geometry[2], geometry[5], geometry[7], geometry[8]
    wide = max(width + geometry[17], (out_width - 1) * geometry[11] + (kernel_x - 1) * geometry[14] + 1)
    rows, read = _band(wide, geometry[4:6], geometry[10], (kernel_y - 1) * geometry[13] + 1)
    if read * wide > BAND and not problem.blocked:
        return None
    tile = min(
        (count for count in TILES if count <= out_width), key=lambda count: -(-out_width // count) * max(count, 5)
    )
    blocks = problem.images * -(-problem.groups // LANES) * -(-geometry[4] // rows)
    weights, parts = step.packed(1, "channels_vectorized", pack_lanes), step.parts(blocks, problem.work * 2)
    bias, known = (
        np.zeros(-(-problem.groups // LANES) * LANES, np.float32),
        step.constant(2) if problem.bias is not None else None,
    )
    if known is not None:
        bias[: problem.groups] = known
    room = step.scratch(parts * VECTOR * _scratch_vectors(wide, read, rows, out_width))
    held = step.constant_buffer(bias)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        arguments = problem.arguments(problem.x, weights, result, held, rows, room, epilogue)
        return Launch(
            convolve_channels,
            parts,
            conv=arguments,
            wide=wide,
            read_rows=read,
            tile=tile,
            blocks_in=int(problem.blocks_in),
            blocks_out=int(problem.blocks_out),
        )

    return [], launch


def band_sizes(axes: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """For two axes of a pool (size, output, kernel, stride, dilation, padding): vectors of a row, rows of a band, rows
    of the input that it reads."""
    (_, out_height, kernel_y, stride_y, dilation_y, *_), (width, out_width, kernel_x, stride_x, dilation_x, pad, *_) = (
        axes
    )
    wide = max(width + pad, (-(-out_width // 4) * 4 - 1) * stride_x + (kernel_x - 1) * dilation_x + 1)
    return wide, *_band(wide, (out_height, out_width), stride_y, (kernel_y - 1) * dilation_y + 1)


def pool_is_faster(planes: int, axes: Sequence[Sequence[int]]) -> bool:
    """Whether it pays for a pool: windows that overlap, or short rows."""
    width, out, kernel, stride, *_ = axes[1]
    if not WIDE or planes < LANES or min(out, width, *axes[0][:2]) == 0 or not (stride < kernel or width <= 2 * LANES):
        return False
    wide, _, read = band_sizes(axes)
    return read * wide <= BAND
