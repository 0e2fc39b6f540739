"""Windows of sixteen channels side by side: for rows too short for vectors along them, and for windows of many taps or long strides.

Channels are turned into the lanes of vectors, so that each element of a plane is one that starts at a line of memory. An output is then made
of whole vectors, whatever its place in the row, and is turned back with the others.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ...runtime.compiler import cgutils, intrinsic, types
from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import f32, number, share
from ...runtime.simd import LANES, any_lane, no_lane, splat
from ..math.finish_kernel import Finish, finished
from ..math.lane_kernel import load_single, store_single
from ..math.tile_kernel import INT, WIDE, loaded, multiplied, written
from ..math.tile_kernel import VECTOR as FLOATS
from ..math.turn_kernel import handed, taken
from .problem_kernel import Problem, Way
from .square_pool_kernel import larger, largest, seen, summed

VECTOR = 4 * LANES
"""Bytes of a vector."""
BAND = 4096
"""Vectors that the input of a band should not have more of."""
SHORT = 12
"""Outputs of a row up to which rows leave too much of a vector empty."""
TILES = (8, 7, 4, 1)
"""Outputs of a row that are summed at a time; results of a last tile that overlaps the one before are written twice."""


@inner
def laid_out(source: Any, plane: Any, channels: Any, width: Any, count: Any, target: Any, wide: Any, turned: Any) -> Any:
    """The first `count` elements of up to sixteen planes, as vectors in rows of `wide`; whether there is NaN among them."""
    x, line, found = 0, target, no_lane()
    for at in range(0, count, LANES):
        some = min(LANES, count - at)
        taken(source + 4 * at, plane, turned, VECTOR, channels, (1 << some) - 1)
        for index in range(some):
            value = load_single(turned + VECTOR * index)
            found = found | (value != value)
            store_single(line + VECTOR * x, value)
            x += 1
            if x == width:
                x, line = 0, line + VECTOR * wide
    return any_lane(found)


@inner
def handed_back(made: Any, target: Any, plane: Any, channels: Any, count: Any) -> None:
    """`count` vectors as elements of up to sixteen planes."""
    for at in range(0, count, LANES):
        handed(made + VECTOR * at, VECTOR, target + 4 * at, plane, channels, (1 << min(LANES, count - at)) - 1)


@inner
def rows_seen(begin: Any, height: Any, kernel: Any, dilation: Any) -> Any:
    """The first tap of a window from row `begin` on that is inside of the plane, and how many are."""
    first = (dilation - 1 - begin) // dilation if begin < 0 else 0
    last = min(kernel, (height - 1 - begin) // dilation + 1) if begin < height else 0
    return first, max(0, last - first)


@inner
def rows_read(begin: Any, rows: Any, stride: Any, reach: Any, height: Any) -> Any:
    """The first row of a plane that windows from row `begin` on see, and how many there are."""
    first = min(height, max(0, begin))
    return first, max(0, min(height, begin + (rows - 1) * stride + reach) - first)


@inner
def _room(wide: Any, read: Any, band: Any, out_width: Any) -> Any:
    """Vectors that a part needs: its input, and its results, each with what turning writes behind."""
    return wide * read + band * out_width + 2 * LANES


@inner
def pool_room(wide: Any, read: Any, band: Any, out_width: Any) -> Any:
    """As `_room`, with a joined row and factors of a row; vectors are read and written in fours."""
    return wide * (read + 1) + 12 + band * out_width + out_width // LANES + 1 + 2 * LANES


def _tile(count: int) -> Any:
    """Outputs of a row, `step` bytes of the input apart."""

    @intrinsic
    def tile(
        typing: Any, line: Any, step: Any, weights: Any, taps_y: Any, taps_x: Any, row: Any, tap: Any, bias: Any, low: Any, high: Any, made: Any,
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            line, step, weights, taps_y, taps_x, row, tap, bias, low, high, made = args
            start = loaded(builder, bias, FLOATS)
            sums = [cgutils.alloca_once_value(builder, start) for _ in range(count)]
            size = ir.Constant(INT, VECTOR)
            with cgutils.for_range(builder, taps_y) as down, cgutils.for_range(builder, taps_x) as across:
                at = builder.add(builder.add(line, builder.mul(down.index, row)), builder.mul(across.index, tap))
                place = builder.mul(builder.add(builder.mul(down.index, taps_x), across.index), size)
                factor = loaded(builder, builder.add(weights, place), FLOATS)
                for index, held in enumerate(sums):
                    element = loaded(builder, builder.add(at, builder.mul(step, ir.Constant(INT, index))), FLOATS)
                    builder.store(multiplied(builder, element, factor, builder.load(held)), held)
            written(builder, [builder.load(held) for held in sums], range(1), made, size, low, high)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8, types.float32, types.float32, types.int64), lower

    return tile


_eight, _seven, _four, _one = (_tile(count) for count in TILES)


@range_kernel
def convolved_abreast(args: Any, part: Any, parts: Any) -> None:
    """One channel for each output channel. Arguments as `problem_kernel` says, kernels [channels / 16, taps, 16], biases padded to them and rows of
    a band in place of the slices; then vectors of a row of the input, rows of it in a band, and outputs of a tile."""
    images, channels, height, width = args[6], args[7], args[11], args[12]
    out_height, out_width, kernel_y, kernel_x = args[14], args[15], args[17], args[18]
    stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x = args[20], args[21], args[23], args[24], args[26], args[27]
    low, high, band, wide, tile = np.float32(number(args[28])), np.float32(number(args[29])), args[30], args[38], args[40]
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    lines = args[31] + part * VECTOR * _room(wide, args[39], band, out_width)
    turned = lines + VECTOR * wide * args[39]
    made, plane, out_plane = turned + VECTOR * LANES, 4 * height * width, 4 * out_height * out_width
    for j in range(wide * args[39]):
        store_single(lines + VECTOR * j, splat(np.float32(0)))
    blocks, bands = (channels + LANES - 1) // LANES, (out_height + band - 1) // band
    first, last = share(images * blocks * bands, part, parts)
    row, tap, step = VECTOR * dilation_y * wide, VECTOR * dilation_x, VECTOR * stride_x
    for unit in range(first, last):
        block, begin = unit // bands % blocks, unit % bands * band
        start, rows, some = unit // bands // blocks * channels + block * LANES, min(band, out_height - begin), min(LANES, channels - block * LANES)
        top, read = rows_read(begin * stride_y - pad_y, rows, stride_y, (kernel_y - 1) * dilation_y + 1, height)
        laid_out(args[0] + start * plane + 4 * top * width, plane, some, width, read * width, lines + VECTOR * pad_x, wide, turned)
        bias, kernels = args[3] + VECTOR * block, args[1] + VECTOR * block * kernel_y * kernel_x
        for index in range(rows):
            at = (begin + index) * stride_y - pad_y
            skipped, taps = rows_seen(at, height, kernel_y, dilation_y)
            line, weights = lines + VECTOR * wide * (at + skipped * dilation_y - top), kernels + VECTOR * skipped * kernel_x
            for x in range(0, out_width, tile):
                column = min(x, out_width - tile)
                source, target = line + step * column, made + VECTOR * (index * out_width + column)
                if tile == 8:
                    _eight(source, step, weights, taps, kernel_x, row, tap, bias, low, high, target)
                elif tile == 7:
                    _seven(source, step, weights, taps, kernel_x, row, tap, bias, low, high, target)
                elif tile == 4:
                    _four(source, step, weights, taps, kernel_x, row, tap, bias, low, high, target)
                else:
                    _one(source, step, weights, taps, kernel_x, row, tap, bias, low, high, target)
        base = start * out_plane + 4 * begin * out_width
        handed_back(made, args[2] + base, out_plane, some, rows * out_width)
        if args[32] != 0:
            finished(args[33], alpha, beta, args[2] + base, out_plane, some, rows * out_width, added + base if added != 0 else added, out_plane)




def _pooling(average: bool) -> Any:
    nothing = np.float32(0 if average else -math.inf)

    def joining(joined: Any) -> Any:
        @inner
        def four(source: Any, step: Any, count: Any, tap: Any, target: Any) -> None:
            """Four vectors, each of `count` that are joined."""
            a, b, c, d = splat(nothing), splat(nothing), splat(nothing), splat(nothing)
            for index in range(count):
                at = source + tap * index
                a, b = joined(a, load_single(at)), joined(b, load_single(at + step))
                c, d = joined(c, load_single(at + 2 * step)), joined(d, load_single(at + 3 * step))
            store_single(target, a)
            store_single(target + VECTOR, b)
            store_single(target + 2 * VECTOR, c)
            store_single(target + 3 * VECTOR, d)

        return four

    plain, careful = joining(summed if average else larger), joining(largest)

    @range_kernel
    def pooled_abreast(args: Any, part: Any, parts: Any) -> None:
        """Arguments as `pooled` has them, vectors of a row in place of elements; then rows of the input in a band."""
        height, width, out_height, out_width, kernel_y, kernel_x = args[3], args[4], args[5], args[6], args[7], args[8]
        stride_y, dilation_y, pad_y, pad_x, padded = args[9], args[11], args[13], args[14], args[17]
        wide, band, step, tap = args[19], args[20], VECTOR * args[10], VECTOR * args[12]
        plane, out_plane = 4 * height * width, 4 * out_height * out_width
        lines = args[18] + part * VECTOR * pool_room(wide, args[21], band, out_width)
        joined = lines + VECTOR * (wide * args[21] + 4)
        turned = joined + VECTOR * (wide + 4)
        factors = turned + VECTOR * LANES
        made, counted = factors + 4 * LANES * ((out_width + LANES - 1) // LANES), -1
        for j in range(wide * (args[21] + 1) + 8):
            store_single(lines + VECTOR * j, splat(nothing))
        blocks, bands = (args[2] + LANES - 1) // LANES, (out_height + band - 1) // band
        first, last = share(blocks * bands, part, parts)
        for unit in range(first, last):
            block, begin = unit // bands, unit % bands * band
            rows, some = min(band, out_height - begin), min(LANES, args[2] - block * LANES)
            top, read = rows_read(begin * stride_y - pad_y, rows, stride_y, (kernel_y - 1) * dilation_y + 1, height)
            source = args[0] + block * LANES * plane + 4 * top * width
            unclear = laid_out(source, plane, some, width, read * width, lines + VECTOR * pad_x, wide, turned)
            for index in range(rows):
                at = (begin + index) * stride_y - pad_y
                skipped, taps = rows_seen(at, height, kernel_y, dilation_y)
                line, below = lines + VECTOR * wide * (at + skipped * dilation_y - top), VECTOR * dilation_y * wide
                target = made + VECTOR * index * out_width
                for x in range(0, wide, 4):
                    if not average and unclear:
                        careful(line + VECTOR * x, VECTOR, taps, below, joined + VECTOR * x)
                    else:
                        plain(line + VECTOR * x, VECTOR, taps, below, joined + VECTOR * x)
                for x in range(0, out_width, 4):
                    if not average and unclear:
                        careful(joined + step * x, step, kernel_x, tap, target + VECTOR * x)
                    else:
                        plain(joined + step * x, step, kernel_x, tap, target + VECTOR * x)
                if average:
                    high = seen(begin + index, (height, kernel_y, stride_y, dilation_y, pad_y, args[15]), padded)
                    if high != counted:
                        counted = high
                        for x in range(out_width):
                            count = high * seen(x, (width, kernel_x, args[10], args[12], pad_x, args[16]), padded)
                            f32(factors)[x] = np.float32(1) / np.float32(count)
                    for x in range(out_width):
                        store_single(target + VECTOR * x, load_single(target + VECTOR * x) * f32(factors)[x])
            handed_back(made, args[1] + block * LANES * out_plane + 4 * begin * out_width, out_plane, some, rows * out_width)

    return pooled_abreast


POOLED = {average: _pooling(average) for average in (False, True)}
"""Kernels by whether they average."""


def _band(wide: int, out: Sequence[int], stride: int, reach: int) -> tuple[int, int]:
    """Rows of the output in a band, and of the input: more than fit where even those of one do not."""
    rows = max(1, min(out[0], (BAND // wide - reach) // stride + 1))
    return rows, (rows - 1) * stride + reach


def by_lanes(w: np.ndarray) -> np.ndarray:
    """Kernels [channels, 1, taps...] as [channels / 16, taps, 16]."""
    channels = len(w)
    made = np.zeros((-(-channels // LANES) * LANES, w[0].size), w.dtype)
    made[:channels] = w.reshape(channels, -1)
    return made.reshape(-1, LANES, made.shape[1]).transpose(0, 2, 1)


def _pays(geometry: Sequence[int]) -> bool:
    """Windows of 3 x 3 are joined along rows that fill most of a vector."""
    return geometry[7] * geometry[8] > 9 or geometry[5] <= SHORT


def abreast(problem: Problem) -> Way | None:
    """The launch where it pays: over one or two axes, with an output for each channel."""
    geometry, step = problem.geometry, problem.step
    if not (WIDE and problem.constant and problem.x.count and problem.channels == problem.outputs == 1 and problem.groups >= LANES):
        return None
    if (*geometry[0:9:3], geometry[15]) != (1, 1, 1, 0) or not problem.positions or not _pays(geometry):
        return None
    width, out_width, kernel_y, kernel_x = geometry[2], geometry[5], geometry[7], geometry[8]
    wide = max(width + geometry[17], (out_width - 1) * geometry[11] + (kernel_x - 1) * geometry[14] + 1)
    rows, read = _band(wide, geometry[4:6], geometry[10], (kernel_y - 1) * geometry[13] + 1)
    if read * wide > BAND:
        return None
    tile = min((count for count in TILES if count <= out_width), key=lambda count: -(-out_width // count) * max(count, 5))
    blocks = problem.images * -(-problem.groups // LANES) * -(-geometry[4] // rows)
    weights, parts = step.packed(1, "abreast", by_lanes), step.parts(blocks, problem.work * 2)
    bias, known = np.zeros(-(-problem.groups // LANES) * LANES, np.float32), step.constant(2) if problem.bias is not None else None
    if known is not None:
        bias[: problem.groups] = known
    room = step.scratch(parts * VECTOR * _room(wide, read, rows, out_width))
    held = step.held(bias)

    def launch(finish: Finish, result: Buffer) -> Launch:
        return Launch(convolved_abreast, (*problem.arguments(problem.x, weights, result, held, rows, room, finish), wide, read, tile), parts)

    return [], launch


def in_bands(axes: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """For two axes of a pool (size, output, kernel, stride, dilation, padding): vectors of a row, rows of a band, rows of the input that it reads."""
    (_, out_height, kernel_y, stride_y, dilation_y, *_), (width, out_width, kernel_x, stride_x, dilation_x, pad, *_) = axes
    wide = max(width + pad, (-(-out_width // 4) * 4 - 1) * stride_x + (kernel_x - 1) * dilation_x + 1)
    return wide, *_band(wide, (out_height, out_width), stride_y, (kernel_y - 1) * dilation_y + 1)


def pools_abreast(planes: int, axes: Sequence[Sequence[int]]) -> bool:
    """Whether it pays for a pool: windows that overlap, or short rows."""
    width, out, kernel, stride, *_ = axes[1]
    if not WIDE or planes < LANES or min(out, width, *axes[0][:2]) == 0 or not (stride < kernel or width <= 2 * LANES):
        return False
    wide, _, read = in_bands(axes)
    return read * wide <= BAND
