"""Convolution with kernels of 3 x 3 and strides of one in Winograd's squares, of 4 x 4 results or, on small planes, of 2 x 2.

Squares of inputs that overlap by two are transformed and become rows of matrices, one for each place in a square, which are multiplied with
kernels that have been transformed before; results are transformed back. The squares of an image, row by row, are cut into blocks. Each is a part
of its own, whose matrices stay in the cache of one core; where there are too few squares for that, a first launch transforms all of them and a
second one multiplies, cut by panels of outputs too.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import number, share
from ...runtime.record import dataclass
from ...runtime.simd import LANES, splat
from ..math.finish_kernel import Finish, finished, foresee
from ..math.lane_kernel import KINDS, SINGLE, load_single, store_single
from ..math.tile_kernel import AHEAD, NARROW, PANEL, WIDE, column_of_tiles
from ..math.turn_kernel import handed, taken
from .problem_kernel import Problem, Way
from .winograd_narrow_kernel import by_channel, panel_of_kernels
from .winograd_square_kernel import FOUR, TWO, VECTOR, Square

ENOUGH = 16
"""Channels and outputs from which the products are more work than the transformations."""
TRANSFORMED = 8
"""What transforming one of the places of a square of a channel or an output costs, in products."""
MOST_WEIGHTS = 1 << 20
"""Bytes of transformed kernels for each square of an image that pay for their memory, and for reading them."""
CACHED = 1 << 20
"""Bytes of transformed kernels that stay in the cache of a core."""
SHARED = 24 << 20
"""Bytes of them that are read for each block."""
SEEN = 12
"""Squares that are multiplied in the time that reading a kernel takes which does not stay there."""
LEAST, MOST, ROOM = 24, 56, 512 << 10
"""Squares of a block at least and at most, and bytes that its matrices should not have more of."""
LEAST_ALONE = 4
"""Squares for each thread from which one panel of outputs is multiplied in blocks, where all parts read the same kernels anyway."""
WIDEST = 64
"""Squares of a row that are transformed together."""
PIECES = 4
"""Units of work for each thread, into which an image is cut where there are fewer panels of outputs."""


@inner
def _lanes(first: Any, last: Any) -> Any:
    """Bits of the lanes from `first` to before `last`, of sixteen."""
    first, last = min(max(first, 0), LANES), min(max(last, 0), LANES)
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


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
def _row_of_blocks(source: Any, begin: Any, width: Any, wide: Any, target: Any) -> None:
    """As `_row`, of an input whose channels come in blocks."""
    for j in range(wide):
        at = begin + j
        if at >= 0 and at < width:
            store_single(target + VECTOR * j, load_single(source + VECTOR * at))
        else:
            store_single(target + VECTOR * j, splat(np.float32(0)))


@dataclass(frozen=True)
class Kernels:
    """Launches for squares of one size."""

    square: Square
    at_once: Any
    taking: Any
    multiplying: Any
    transforming: Any


def _kernels(square: Square) -> Kernels:
    edge, side, places = square.edge, square.side, square.places
    forth, back, put, bounded = square.forth, square.back, square.put, square.bounded
    kernels = panel_of_kernels(square)
    together = LANES // edge

    @inner
    def stretch(args: Any, first: Any, last: Any) -> Any:
        """Row and column of a square, and how many of it and those behind it, up to `last`, are in that row."""
        across = (args[15] + edge - 1) // edge
        column = first % across
        return first // across, column, min(min(across - column, last - first), WIDEST)

    @inner
    def squares(args: Any, image: Any, first: Any, last: Any, channel: Any, v: Any, spare: Any) -> None:
        """Sixteen channels of squares `[first, last)`, transformed: rows of matrices."""
        channels, height, width, pad_y, pad_x, pitch = args[8], args[11], args[12], args[26], args[27], args[40]
        source, plane, apart = args[0] + 4 * (image * channels + channel) * height * width, 4 * height * width, (last - first) * pitch
        at, above, before = first, -1, -1
        while at < last:
            row, column, count = stretch(args, at, last)
            wide = edge * count + 2
            line = VECTOR * ((wide + LANES - 1) // LANES * LANES)
            half, start = spare + side * line, 0
            if column == above and count == before:
                for j in range(0, 2 * line, VECTOR):
                    store_single(spare + j, load_single(spare + edge * line + j))
                start = 2
            above, before = column, count
            for i in range(start, side):
                y = edge * row + i - pad_y
                inside = width if y >= 0 and y < height else 0
                if args[44] != 0:
                    _row_of_blocks(source + VECTOR * y * width, edge * column - pad_x, inside, wide, spare + i * line)
                else:
                    _row(source + 4 * y * width, plane, channels - channel, edge * column - pad_x, inside, wide, spare + i * line)
            for index in range(count):
                for j in range(side):
                    forth(spare + VECTOR * (edge * index + j), line, half + VECTOR * j, side * VECTOR)
                target = v + (at - first + index) * pitch + 4 * channel
                for i in range(side):
                    forth(half + side * VECTOR * i, VECTOR, target + side * i * apart, apart)
            at += count

    @inner
    def results(args: Any, image: Any, output: Any, row: Any, column: Any, count: Any, products: Any, apart: Any, spare: Any) -> None:
        """Up to sixteen outputs of squares in a row, transformed back, with their biases and limits."""
        outputs, out_height, out_width = args[9], args[14], args[15]
        low, high = splat(np.float32(number(args[28]))), splat(np.float32(number(args[29])))
        bias, plane = load_single(args[3] + 4 * output), 4 * out_height * out_width
        made, line = spare + edge * side * VECTOR, LANES * VECTOR
        for begin in range(0, count, together):
            for index in range(min(together, count - begin)):
                source = products + 4 * PANEL * (begin + index)
                for j in range(side):
                    put(back(source + apart * j, side * apart), spare + VECTOR * j, side * VECTOR)
                for i in range(edge):
                    found = back(spare + side * VECTOR * i, VECTOR)
                    put(bounded(found, bias, low, high), made + edge * VECTOR * index + line * i, VECTOR)
            x = edge * (column + begin)
            lanes = _lanes(0, min(out_width - x, edge * (count - begin)))
            for i in range(min(edge, out_height - edge * row)):
                base, at = args[2] + (image * outputs + output) * plane, (edge * row + i) * out_width + x
                if args[45] != 0:
                    for j in range(min(out_width - x, edge * (count - begin), LANES)):
                        store_single(base + VECTOR * (at + j), load_single(made + line * i + VECTOR * j))
                else:
                    handed(made + line * i, VECTOR, base + 4 * at, plane, min(LANES, outputs - output), lanes)

    @inner
    def coming(args: Any, image: Any, output: Any, most: Any, first: Any, last: Any) -> None:
        """Ask for the memory of results, and for what is added to them."""
        out_height, out_width, added, block = args[14], args[15], args[36], LANES if args[45] != 0 else 1
        plane, at = 4 * out_height * out_width, first
        while at < last:
            row, column, count = stretch(args, at, last)
            at += count
            wide = min(edge * count, out_width - edge * column)
            for y in range(edge * row, min(edge * row + edge, out_height)):
                place = (image * args[9] + output) * plane + 4 * block * (y * out_width + edge * column)
                foresee(args[2] + place, added + place if added != 0 else added, block * plane, most // block, 4 * block * wide)

    @inner
    def panel(args: Any, weights: Any, image: Any, index: Any, first: Any, last: Any, v: Any, apart: Any, products: Any) -> None:
        """A panel of outputs of squares `[first, last)`, whose matrices are `apart` bytes apart: products, results, and what follows them."""
        channels, outputs, out_height, out_width, pitch = args[8], args[9], args[14], args[15], args[40]
        rows, output = last - first, index * PANEL
        most = min(PANEL, outputs - output)
        width = NARROW if most <= NARROW else PANEL
        none, least, limit = args[5], np.float32(-np.inf), np.float32(np.inf)
        coming(args, image, output, most, first, last)
        for place in range(places):
            made, source = products + 4 * PANEL * rows * place, weights + 4 * PANEL * channels * place
            column_of_tiles(
                v + place * apart, pitch, 4, source, channels, made, 4 * PANEL, 0, rows, width, none, 0, none, least, limit, products, AHEAD
            )
        alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
        plane, spare, at = 4 * out_height * out_width, products + 4 * PANEL * places * rows, first
        while at < last:
            row, column, count = stretch(args, at, last)
            source = products + 4 * PANEL * (at - first)
            at += count
            for half in range(0, most, NARROW):
                results(args, image, output + half, row, column, count, source + 4 * half, 4 * PANEL * rows, spare)
            if args[32] != 0:
                wide, block = min(edge * count, out_width - edge * column), LANES if args[45] != 0 else 1
                for y in range(edge * row, min(edge * row + edge, out_height)):
                    base = (image * outputs + output) * plane + 4 * block * (y * out_width + edge * column)
                    other, step = added + base if added != 0 else added, block * plane
                    finished(args[33], alpha, beta, args[2] + base, step, most // block, block * wide, other, step)

    @range_kernel
    def convolved_in_squares(args: Any, part: Any, parts: Any) -> None:
        """Blocks, each as a whole. Arguments as `problem_kernel` says, with panels of transformed kernels, biases padded to them and the blocks of
        an image in place of the slices; then squares of an image, of a block at most, bytes of a row of transformed squares and of a part, the
        memory of all images, the kind of the kernels, and whether the channels of the input and of the output come in blocks.
        """
        blocks, total, pitch, nbytes = args[30], args[38], args[40], 4 * PANEL * places * args[8]
        v = args[31] + part * args[41]
        products = v + args[39] * places * pitch
        begin, end = share(args[6] * blocks, part, parts)
        for unit in range(begin, end):
            image = unit // blocks
            first, last = share(total, unit % blocks, blocks)
            for channel in range(0, args[8], LANES):
                squares(args, image, first, last, channel, v, products)
            for index in range((args[9] + PANEL - 1) // PANEL):
                panel(args, args[1] + index * nbytes, image, index, first, last, v, (last - first) * pitch, products)

    @range_kernel
    def transformed_squares(args: Any, part: Any, parts: Any) -> None:
        """Arguments as `convolved_in_squares` has them; sixteen channels of an image at a time."""
        groups, total = (args[8] + LANES - 1) // LANES, args[38]
        begin, end = share(args[6] * groups, part, parts)
        for unit in range(begin, end):
            image = unit // groups
            squares(args, image, 0, total, unit % groups * LANES, args[42] + image * total * places * args[40], args[31] + part * args[41])

    @range_kernel
    def multiplied_squares(args: Any, part: Any, parts: Any) -> None:
        """Arguments as `convolved_in_squares` has them; narrow kernels are transformed here, a panel at a time. One piece of an image after another
        of a panel of outputs."""
        pieces, total, pitch, kind, nbytes = args[30], args[38], args[40], args[43], 4 * PANEL * places * args[8]
        scratch, held = args[31] + part * args[41], -1
        begin, end = share((args[9] + PANEL - 1) // PANEL * args[6] * pieces, part, parts)
        for unit in range(begin, end):
            image, index = unit // pieces % args[6], unit // pieces // args[6]
            weights = args[1] + index * nbytes
            if kind != SINGLE:
                if index != held:
                    kernels(kind, args[1] + 18 * PANEL * args[8] * index, scratch, args[8])
                weights, held = scratch, index
            first, last = share(total, unit % pieces, pieces)
            v = args[42] + (image * total * places + first) * pitch
            panel(args, weights, image, index, first, last, v, total * pitch, scratch if kind == SINGLE else scratch + nbytes)

    @range_kernel
    def transformed_kernels(args: Any, part: Any, parts: Any) -> None:
        """Narrow kernels, transformed ones, how many panels and channels, kind of the narrow ones."""
        first, last = share(args[2], part, parts)
        for index in range(first, last):
            kernels(args[4], args[0] + 18 * PANEL * args[3] * index, args[1] + 4 * PANEL * places * args[3] * index, args[3])

    return Kernels(square, convolved_in_squares, transformed_squares, multiplied_squares, transformed_kernels)


_KERNELS = {square.edge: _kernels(square) for square in (FOUR, TWO)}


def _count(square: Square, geometry: Sequence[int]) -> int:
    """Squares of an image."""
    return -(-geometry[4] // square.edge) * -(-geometry[5] // square.edge)


def chosen(w: Buffer, geometry: Sequence[int], groups: int) -> Square | None:
    """The squares for a convolution of that geometry (sizes, lengths of the output, kernel, strides, dilations, padding); None where none pay."""
    plain = tuple(geometry[6:15]) == (1, 3, 3, 1, 1, 1, 1, 1, 1) and geometry[3] == 1 and groups == 1
    outputs, channels = w.shape[:2]
    if not (WIDE and plain and min(outputs, channels) >= ENOUGH):
        return None
    costs: dict[float, Square | None] = {geometry[4] * geometry[5] * w.count: None}
    for square in (TWO, FOUR):
        count, nbytes = _count(square, geometry), w.count * square.places // 9 * 4
        if nbytes <= MOST_WEIGHTS * count:
            products = channels * outputs * (count if nbytes <= CACHED else max(count, SEEN))
            costs[square.places * (products + TRANSFORMED * count * (channels + outputs))] = square
    return costs[min(costs)]


def _weights(problem: Problem, square: Square, total: int) -> tuple[Buffer, list[Launch], int]:
    """Kernels, launches that transform narrow ones for several blocks, and bytes of a panel of narrow ones that are transformed where needed."""
    step, panels, nbytes = problem.step, -(-problem.outputs // PANEL), 4 * PANEL * square.places * problem.channels
    narrow = step.narrowed(1, "kernels by channel", by_channel)
    if narrow is None:
        return step.packed(1, ("squares", square.edge), square.transformed), [], 0
    if total <= MOST:
        return narrow, [], nbytes
    made = step.scratch(panels * nbytes)
    arguments = (narrow, made, panels, problem.channels, KINDS[narrow.dtype.name])
    return made, [Launch(_KERNELS[square.edge].transforming, arguments, step.parts(panels, narrow.count))], 0


def in_squares(problem: Problem) -> Way | None:
    """The launches for kernels of 3 x 3 where they pay."""
    square = chosen(problem.w, problem.geometry, problem.groups) if problem.constant else None
    if square is None:
        return None
    step, kernels, total = problem.step, _KERNELS[square.edge], _count(square, problem.geometry)
    pitch = 4 * (-(-problem.channels // LANES) + 1) * LANES
    (weights, before, held), bias = _weights(problem, square, total), problem.padded_bias()
    columns = min(-(-problem.lengths[2] // square.edge), WIDEST)
    lines = square.side * VECTOR * (-(-(square.edge * columns + 2) // LANES) * LANES) + square.places * VECTOR
    turned = square.edge * (square.side + LANES) * VECTOR
    layouts = (int(problem.blocks_in), int(problem.blocks_out))
    work = problem.work * square.places / (9 * square.edge**2) * 1.2
    least = LEAST_ALONE if problem.outputs <= PANEL else LEAST // 2
    if not held and total >= least * step.threads and weights.nbytes <= SHARED:
        blocks = -(-total // (MOST if weights.nbytes > CACHED else min(MOST, max(LEAST, ROOM // (square.places * pitch)))))
        blocks = -(-blocks // step.threads) * step.threads
        most = -(-total // blocks)
        parts = min(2 * step.threads, problem.parts(problem.images * blocks, work))
        each = most * square.places * pitch + max(lines, 4 * PANEL * square.places * most + turned)
        whole = step.scratch(parts * each)

        def at_once(finish: Finish, result: Buffer) -> Launch:
            head = problem.arguments(problem.x, weights, result, bias, blocks, whole, finish)
            return Launch(kernels.at_once, (*head, total, most, pitch, each, 0, SINGLE, *layouts), parts)

        return before, at_once
    panels_of, groups = problem.images * -(-problem.outputs // PANEL), problem.images * -(-problem.channels // LANES)
    everything = step.scratch(problem.images * total * square.places * pitch)
    pieces = 1 if step.threads == 1 else min(-(-total // 4), -(-PIECES * step.threads // panels_of))
    taking = problem.parts(groups, problem.images * problem.channels * total * square.places)
    multiplying = problem.parts(panels_of * pieces, work)
    head = problem.arguments(problem.x, 0, 0, None, 0, step.scratch(taking * lines))
    first = Launch(kernels.taking, (*head, total, total, pitch, lines, everything, SINGLE, *layouts), taking)
    results = 4 * PANEL * square.places * -(-total // pieces) + turned + held
    room, kind = step.scratch(multiplying * results), KINDS[weights.dtype.name] if held else SINGLE

    def multiplied(finish: Finish, result: Buffer) -> Launch:
        head = problem.arguments(problem.x, weights, result, bias, pieces, room, finish)
        return Launch(kernels.multiplying, (*head, total, total, pitch, results, everything, kind, *layouts), multiplying)

    return [*before, first], multiplied
