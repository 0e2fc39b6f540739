"""Convolution with kernels of 3 x 3 and strides of one by Winograd's F(4 x 4, 3 x 3): 36 products for 16 outputs, where the sum takes 144.

Squares of 6 x 6 inputs, 4 apart, are transformed, sixteen channels at a time, and become rows of 36 matrices, which are multiplied with kernels
that have been transformed before; results are transformed back, sixteen outputs at a time. Planes are cut into blocks of squares. Where the
squares of all blocks fit into the cache, a first launch transforms them and a second one multiplies, so that each panel of kernels is read
once; else each block is a part of its own. Rounding errors are about those of the sum; what is infinite or NaN reaches all 16 outputs of its
squares. Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks".
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import number, share
from ...runtime.simd import LANES, select, splat
from ..math.finish_kernel import Finish, finished
from ..math.lane_kernel import load_single, store_single
from ..math.tile_kernel import AHEAD, NARROW, PANEL, WIDE, column_of_tiles
from ..math.turn_kernel import handed, taken
from .problem_kernel import Problem, Way

EDGE, SQUARE = 4, 36
FEWEST = 12
"""Squares of an image from which there are enough rows."""
ENOUGH = 16
"""Channels and outputs from which the products are more work than the transformations."""
MOST_WEIGHTS = 1 << 20
"""Bytes of transformed kernels for each square of an image that pay for their memory, and for reading them."""
BLOCK = 56
"""Squares of a block, about."""
WIDEST = 64
"""Squares of a row of a block."""
PIECES = 4
"""Units of work for each thread, into which blocks are cut where there are fewer."""
CACHED = 12 << 20
"""Bytes of transformed squares that stay in the cache from one launch to the next."""
NEAR, FAR = 2 / 3, 3 / 2
"""The polynomials are known at 0, at these two numbers and their negatives, and at infinity. Errors are a third of those with 1 and 2."""
NEAR_2, FAR_2, BOTH = (np.float32(number) for number in (NEAR**2, FAR**2, NEAR**2 + FAR**2))
NEAR_1, NEAR_3, FAR_1, FAR_3 = (np.float32(number) for number in (NEAR, NEAR**3, FAR, FAR**3))
VECTOR = 4 * LANES
"""Bytes of a vector."""


def _at(point: float, other: float) -> list[float]:
    """A row of what kernels are multiplied with."""
    factor = 2 * point**2 * (point**2 - other**2)
    return [1 / factor, point / factor, point**2 / factor]


KERNEL = np.array([[1, 0, 0], _at(NEAR, FAR), _at(-NEAR, FAR), _at(FAR, NEAR), _at(-FAR, NEAR), [0, 0, 1]])
"""What a kernel is multiplied with from both sides."""


COLUMNS = 512
"""Columns that are multiplied together: they stay in the cache, and BLAS starts no threads for so few, which would wait for each other."""


def transformed(w: np.ndarray) -> np.ndarray:
    """Kernels [outputs, channels, 3, 3] as panels [outputs / PANEL, 36, channels, PANEL]."""
    outputs, channels = w.shape[:2]
    made = np.empty((-(-outputs // PANEL), SQUARE, channels, PANEL), np.float32)
    both, part = np.kron(KERNEL, KERNEL), np.zeros((9, channels, PANEL))
    for index, panel in enumerate(made.reshape(len(made), SQUARE, -1)):
        some = w[index * PANEL : (index + 1) * PANEL]
        part[:, :, : len(some)] = some.reshape(len(some), channels, 9).transpose(2, 1, 0)
        part[:, :, len(some) :] = 0
        for start in range(0, channels * PANEL, COLUMNS):
            panel[:, start : start + COLUMNS] = both @ part.reshape(9, -1)[:, start : start + COLUMNS]
    return made


def pays(w: Buffer, geometry: Sequence[int], groups: int) -> bool:
    """Whether a convolution of that geometry (sizes, lengths of the output, kernel, strides, dilations, padding) is one for this file."""
    plain = tuple(geometry[6:15]) == (1, 3, 3, 1, 1, 1, 1, 1, 1) and geometry[3] == 1 and groups == 1
    outputs, channels = w.shape[:2]
    squares = -(-geometry[4] // EDGE) * -(-geometry[5] // EDGE)
    return WIDE and plain and min(outputs, channels) >= ENOUGH and squares >= FEWEST and w.count * SQUARE // 9 * 4 <= MOST_WEIGHTS * squares


def _even(length: int, most: int) -> int:
    """The length of pieces, none longer than `most`, that are about equal."""
    return -(-length // -(-length // most))


def block_of(out_height: int, out_width: int) -> tuple[int, int]:
    """Rows and columns of squares in a block."""
    down, across = -(-out_height // EDGE), -(-out_width // EDGE)
    columns = _even(across, WIDEST)
    return _even(down, max(1, BLOCK // columns)), columns


@inner
def _lanes(first: Any, last: Any) -> Any:
    """Bits of the lanes from `first` to before `last`, of sixteen."""
    first, last = min(max(first, 0), LANES), min(max(last, 0), LANES)
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _forth(source: Any, step: Any, target: Any, apart: Any) -> None:
    """Six vectors `step` bytes apart, transformed, to places `apart` bytes apart."""
    near, far, both = splat(NEAR_2), splat(FAR_2), splat(BOTH)
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    inner_even, inner_odd = e - c * far, (d - b * far) * splat(NEAR_1)
    outer_even, outer_odd = e - c * near, (d - b * near) * splat(FAR_1)
    store_single(target, a - c * both + e)
    store_single(target + apart, inner_even + inner_odd)
    store_single(target + 2 * apart, inner_even - inner_odd)
    store_single(target + 3 * apart, outer_even + outer_odd)
    store_single(target + 4 * apart, outer_even - outer_odd)
    store_single(target + 5 * apart, b - d * both + f)


@inner
def _back(source: Any, step: Any) -> Any:
    """Four vectors of six."""
    a, b, c = load_single(source), load_single(source + step), load_single(source + 2 * step)
    d, e, f = load_single(source + 3 * step), load_single(source + 4 * step), load_single(source + 5 * step)
    total, gap, far_total, far_gap = b + c, b - c, d + e, d - e
    first = gap * splat(NEAR_1) + far_gap * splat(FAR_1)
    second = total * splat(NEAR_2) + far_total * splat(FAR_2)
    third = gap * splat(NEAR_3) + far_gap * splat(FAR_3) + f
    return a + total + far_total, first, second, third


@inner
def _row(source: Any, plane: Any, channels: Any, begin: Any, width: Any, wide: Any, target: Any) -> None:
    """A row of `wide` inputs from column `begin` on, of sixteen channels each; `width` is 0 for a row outside of the image."""
    for start in range(0, wide, LANES):
        valid = _lanes(-begin - start, width - begin - start)
        place = target + VECTOR * start
        if valid != 0:
            taken(source + 4 * (begin + start), plane, place, VECTOR, channels, valid)
        else:
            for j in range(min(LANES, wide - start)):
                store_single(place + VECTOR * j, splat(np.float32(0)))


@inner
def _squares(args: Any, image: Any, first_row: Any, first_column: Any, rows: Any, columns: Any, channel: Any, v: Any, pitch: Any, spare: Any) -> None:
    """Sixteen channels of a block's squares, transformed: rows of `pitch` bytes of 36 matrices."""
    channels, height, width, pad_y, pad_x = args[8], args[11], args[12], args[26], args[27]
    wide = EDGE * columns + 2
    line = VECTOR * ((wide + LANES - 1) // LANES * LANES)
    source, plane = args[0] + 4 * (image * channels + channel) * height * width, 4 * height * width
    half = spare + (EDGE + 2) * line
    apart = rows * columns * pitch
    for row in range(rows):
        start = 0
        if row > 0:
            for j in range(0, 2 * line, VECTOR):
                store_single(spare + j, load_single(spare + EDGE * line + j))
            start = 2
        for i in range(start, EDGE + 2):
            at = EDGE * (first_row + row) + i - pad_y
            inside = width if at >= 0 and at < height else 0
            _row(source + 4 * at * width, plane, channels - channel, EDGE * first_column - pad_x, inside, wide, spare + i * line)
        for column in range(columns):
            for j in range(EDGE + 2):
                _forth(spare + VECTOR * (EDGE * column + j), line, half + VECTOR * j, 6 * VECTOR)
            target = v + (row * columns + column) * pitch + 4 * channel
            for i in range(EDGE + 2):
                _forth(half + 6 * VECTOR * i, VECTOR, target + 6 * i * apart, apart)


@inner
def _square_back(source: Any, apart: Any, bias: Any, low: Any, high: Any, half: Any, target: Any, line: Any) -> None:
    """Products of one square and sixteen outputs, transformed back: four rows, `line` bytes apart, of four vectors."""
    for j in range(6):
        a, b, c, d = _back(source + apart * j, 6 * apart)
        store_single(half + VECTOR * j, a)
        store_single(half + VECTOR * (6 + j), b)
        store_single(half + VECTOR * (12 + j), c)
        store_single(half + VECTOR * (18 + j), d)
    for i in range(EDGE):
        a, b, c, d = _back(half + 6 * VECTOR * i, VECTOR)
        a, b, c, d = a + bias, b + bias, c + bias, d + bias
        a, b, c, d = select(a < low, low, a), select(b < low, low, b), select(c < low, low, c), select(d < low, low, d)
        a, b, c, d = select(a > high, high, a), select(b > high, high, b), select(c > high, high, c), select(d > high, high, d)
        place = target + line * i
        store_single(place, a)
        store_single(place + VECTOR, b)
        store_single(place + 2 * VECTOR, c)
        store_single(place + 3 * VECTOR, d)


@inner
def _results(args: Any, image: Any, output: Any, first_row: Any, first_column: Any, rows: Any, columns: Any, products: Any, spare: Any) -> None:
    """Up to sixteen outputs of a block, transformed back, with their biases and limits."""
    outputs, out_height, out_width = args[9], args[14], args[15]
    low, high = splat(np.float32(number(args[28]))), splat(np.float32(number(args[29])))
    bias = load_single(args[3] + 4 * output)
    plane, apart = 4 * out_height * out_width, 4 * PANEL * rows * columns
    half, line = spare, 4 * EDGE * VECTOR
    made = spare + 4 * 6 * VECTOR
    for row in range(rows):
        for column in range(0, columns, 4):
            source = products + 4 * PANEL * (row * columns + column)
            for square in range(min(4, columns - column)):
                _square_back(source + 4 * PANEL * square, apart, bias, low, high, half, made + EDGE * VECTOR * square, line)
            at_x = EDGE * (first_column + column)
            lanes = _lanes(0, min(out_width - at_x, EDGE * (columns - column)))
            for i in range(min(EDGE, out_height - EDGE * (first_row + row))):
                at_y = EDGE * (first_row + row) + i
                target = args[2] + (image * outputs + output) * plane + 4 * (at_y * out_width + at_x)
                handed(made + line * i, VECTOR, target, plane, min(LANES, outputs - output), lanes)


@inner
def _panel(
    args: Any, image: Any, panel: Any, first_row: Any, first_column: Any, rows: Any, columns: Any, v: Any, apart: Any, pitch: Any, products: Any
) -> None:
    """A panel of outputs of some rows of squares, whose matrices are `apart` bytes apart: products, results, and what follows them."""
    channels, outputs, out_height, out_width = args[8], args[9], args[14], args[15]
    squares, output = rows * columns, panel * PANEL
    most = min(PANEL, outputs - output)
    width = NARROW if most <= NARROW else PANEL
    none, least, limit = args[5], np.float32(-np.inf), np.float32(np.inf)
    for place in range(SQUARE):
        weights = args[1] + 4 * PANEL * channels * (panel * SQUARE + place)
        made = products + 4 * PANEL * squares * place
        column_of_tiles(
            v + place * apart, pitch, 4, weights, channels, made, 4 * PANEL, 0, squares, width, none, 0, none, least, limit, products, AHEAD
        )
    spare = products + 4 * PANEL * SQUARE * squares
    for half in range(0, width, NARROW):
        if half < most:
            _results(args, image, output + half, first_row, first_column, rows, columns, products + 4 * half, spare)
    if args[32] == 0:
        return
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    wide, plane = min(EDGE * columns, out_width - EDGE * first_column), 4 * out_height * out_width
    for at_y in range(EDGE * first_row, min(EDGE * (first_row + rows), out_height)):
        base = (image * outputs + output) * plane + 4 * (at_y * out_width + EDGE * first_column)
        finished(args[33], alpha, beta, args[2] + base, plane, most, wide, added + base if added != 0 else added, plane)


@inner
def _block(args: Any, unit: Any) -> Any:
    """The image of a block, its first row and column of squares, and how many of them it has."""
    together, columns = args[30], args[38]
    down, across = (args[14] + EDGE - 1) // EDGE, (args[15] + EDGE - 1) // EDGE
    wide = (across + columns - 1) // columns
    blocks = (down + together - 1) // together * wide
    image, block = unit // blocks, unit % blocks
    row, column = block // wide * together, block % wide * columns
    return image, row, column, min(together, down - row), min(columns, across - column)


@range_kernel
def convolved_in_squares(args: Any, part: Any, parts: Any) -> None:
    """Blocks, each as a whole. Arguments as `problem_kernel` says, with panels of transformed kernels, biases padded to them and rows of squares
    in a block in place of the slices; then columns of squares in a block, blocks, bytes of a row of transformed squares and of a part's memory.
    """
    pitch = args[40]
    v = args[31] + part * args[41]
    products = v + args[30] * args[38] * SQUARE * pitch
    first, last = share(args[39], part, parts)
    for unit in range(first, last):
        image, row, column, rows, columns = _block(args, unit)
        for channel in range(0, args[8], LANES):
            _squares(args, image, row, column, rows, columns, channel, v, pitch, products)
        for panel in range((args[9] + PANEL - 1) // PANEL):
            _panel(args, image, panel, row, column, rows, columns, v, rows * columns * pitch, pitch, products)


@range_kernel
def transformed_squares(args: Any, part: Any, parts: Any) -> None:
    """Arguments as `convolved_in_squares` has them, the memory of all blocks at the end; sixteen channels of a block at a time."""
    groups, pitch = (args[8] + LANES - 1) // LANES, args[40]
    spare = args[31] + part * args[41]
    first, last = share(args[39] * groups, part, parts)
    for unit in range(first, last):
        image, row, column, rows, columns = _block(args, unit // groups)
        v = args[42] + unit // groups * args[30] * args[38] * SQUARE * pitch
        _squares(args, image, row, column, rows, columns, unit % groups * LANES, v, pitch, spare)


@range_kernel
def multiplied_squares(args: Any, part: Any, parts: Any) -> None:
    """Arguments as `transformed_squares` has them, then pieces that the rows of a block are cut into; one block after another of a panel of
    outputs.
    """
    count, pitch, pieces = args[39], args[40], args[43]
    products = args[31] + part * args[41]
    first, last = share((args[9] + PANEL - 1) // PANEL * count * pieces, part, parts)
    for unit in range(first, last):
        block, panel = unit // pieces % count, unit // pieces // count
        image, row, column, rows, columns = _block(args, block)
        begin, end = share(rows, unit % pieces, pieces)
        v = args[42] + block * args[30] * args[38] * SQUARE * pitch + begin * columns * pitch
        if begin < end:
            _panel(args, image, panel, row + begin, column, end - begin, columns, v, rows * columns * pitch, pitch, products)


def in_squares(problem: Problem) -> Way | None:
    """The launches for kernels of 3 x 3 where they pay."""
    if not (pays(problem.w, problem.geometry, problem.groups) and problem.constant):
        return None
    step, channels = problem.step, problem.channels
    (rows, columns), tall, wide = block_of(*problem.lengths[1:]), *(-(-length // EDGE) for length in problem.lengths[1:])
    blocks = problem.images * -(-tall // rows) * -(-wide // columns)
    pitch = 4 * (-(-channels // LANES) + 1) * LANES
    squares = rows * columns * SQUARE * pitch
    lines = (EDGE + 2) * VECTOR * (-(-(EDGE * columns + 2) // LANES) * LANES) + SQUARE * VECTOR
    results = 4 * PANEL * SQUARE * rows * columns + (6 + 16) * EDGE * VECTOR
    weights, bias = step.packed(1, "squares", transformed), problem.padded_bias()
    panels_of, work = -(-problem.outputs // PANEL), problem.work / 2.5
    if blocks * squares > CACHED and blocks >= 2 * step.threads:
        parts, each = step.parts(blocks, work), squares + max(lines, results)
        whole = step.scratch(parts * each)

        def at_once(finish: Finish, result: Buffer) -> Launch:
            head = problem.arguments(problem.x, weights, result, bias, rows, whole, finish)
            return Launch(convolved_in_squares, (*head, columns, blocks, pitch, each), parts)

        return [], at_once
    everything = step.scratch(blocks * squares)
    groups = blocks * -(-channels // LANES)
    pieces = 1 if step.threads == 1 else min(rows, -(-PIECES * step.threads // (blocks * panels_of)))
    taking, multiplying = step.parts(groups, problem.x.count / 2), step.parts(blocks * panels_of * pieces, work)
    head = problem.arguments(problem.x, 0, 0, None, rows, step.scratch(taking * lines))
    first = Launch(transformed_squares, (*head, columns, blocks, pitch, lines, everything), taking)
    room = step.scratch(multiplying * results)

    def multiplied(finish: Finish, result: Buffer) -> Launch:
        head = problem.arguments(problem.x, weights, result, bias, rows, room, finish)
        return Launch(multiplied_squares, (*head, columns, blocks, pitch, results, everything, pieces), multiplying)

    return [first], multiplied
