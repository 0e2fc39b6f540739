"""Winograd convolution of 3 x 3 kernels with stride 1: F(4 x 4, 3 x 3), and F(2 x 2, 3 x 3) on small planes.

Squares of inputs that overlap by two are transformed and become rows of matrices, one per position in a square, which
are multiplied with kernels that have been transformed before; results are transformed back. The squares of an image,
row by row, are cut into blocks. Each is a part of its own, whose matrices stay in the cache of one core; where there
are too few squares for that, a first launch transforms all of them and a second one multiplies, cut by panels of
outputs too.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.jit.address import share
from .....runtime.jit.isa import features
from .....runtime.jit.kernel_arguments import Address
from .....runtime.jit.range_kernel import inner, range_kernel
from .....runtime.plan.kernel_api import Buffer, Launch
from .....runtime.simd.memory import DTYPE_CODES, load_f32, store_f32
from .....runtime.simd.transpose import load_columns, store_columns
from .....runtime.simd.vector import LANES, splat
from ...gemm.epilogue import Epilogue, apply_epilogue, prefetch_rows
from ...gemm.microkernel_f32 import NARROW, PREFETCH_DISTANCE, column_of_tiles
from ...gemm.register_tile import PANEL
from ..problem import Convolution, ConvPlan, Problem
from .kernel_transform import pack_kernels, panel_bytes, panel_transform
from .transform import F2, F4, VECTOR, TileTransform

MIN_CHANNELS = 16
"""Minimum number of channels and of outputs for Winograd to pay."""
TRANSFORM_COST = 8
"""Cost of transforming one element of a tile, in products."""
MAX_WEIGHT_BYTES = 1 << 20
"""Maximum bytes of transformed kernels per tile of an image."""
CORE_CACHE_BYTES = 1 << 20
"""Bytes of transformed kernels that fit the cache of a core."""
SHARED_CACHE_BYTES = 24 << 20
"""Bytes of transformed kernels that are read for each block of tiles."""
TILES_PER_WEIGHT_READ = 12
"""Tiles multiplied in the time of reading an uncached kernel."""
LARGE_BYTES, MANY_TILES = 8 << 20, 256
"""Bytes of transformed kernels and tiles of an image from which on f32 kernels, too, are transformed in each run."""
TRANSFORMED = -1
"""In place of the dtype of kernels: they are transformed already."""
MIN_TILES, MAX_TILES, BLOCK_BYTES = 24, 56, 512 << 10
"""Minimum and maximum number of tiles in a block, and the maximum bytes of its matrices."""
STREAMED_TILES, STREAMED_BLOCK = 1000, 112
"""Tiles of an image from which on larger kernels, too, are read for each block, and tiles in such a block."""
MIN_TILES_ONE_PANEL = 4
"""Minimum number of tiles per thread to multiply a single panel of outputs in blocks."""
ROW_TILES = 64
"""Tiles of a row that are transformed together."""
PIECES_PER_THREAD = 4
"""Units of work per thread if an image has fewer panels of outputs than threads."""


@inner
def _lanes(first: Any, last: Any) -> Any:
    """Bits of the lanes from `first` to before `last`, of sixteen."""
    first, last = min(max(first, 0), LANES), min(max(last, 0), LANES)
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _row(source: Any, plane: Any, channels: Any, begin: Any, width: Any, wide: Any, target: Any) -> None:
    """A row of `wide` inputs from column `begin` on, of sixteen channels each; `width` is 0 for a row outside of the
    image."""
    for start in range(0, wide, LANES):
        valid = _lanes(-begin - start, width - begin - start)
        place = target + VECTOR * start
        if valid != 0:
            load_columns(source + 4 * (begin + start), plane, place, VECTOR, channels, valid)
        else:
            for j in range(min(LANES, wide - start)):
                store_f32(place + VECTOR * j, splat(np.float32(0)))


@inner
def _row_of_blocks(source: Any, begin: Any, width: Any, wide: Any, target: Any) -> None:
    """As `_row`, of an input whose channels come in blocks."""
    for j in range(wide):
        at = begin + j
        if at >= 0 and at < width:
            store_f32(target + VECTOR * j, load_f32(source + VECTOR * at))
        else:
            store_f32(target + VECTOR * j, splat(np.float32(0)))


class Layout(NamedTuple):
    """Tiles of an image and of a block; bytes of a row of transformed tiles and of a part; the transformed input; dtype
    of the kernels; whether input and output are NCHW16c."""

    total: int
    max_tiles: int
    pitch: int
    part_bytes: int
    matrices: Address
    kind: int
    blocks_in: int
    blocks_out: int


@dataclass(frozen=True)
class Kernels:
    """Kernels for tiles of one size."""

    transform: TileTransform
    fused: Any
    input: Any
    multiply: Any
    weights_kernel: Any


def _kernels(transform: TileTransform) -> Kernels:
    edge, input_edge, points = transform.edge, transform.input_edge, transform.points
    input_transform, output_transform, store, clamp = (
        transform.input_transform,
        transform.output_transform,
        transform.store,
        transform.clamp,
    )
    kernels = panel_transform(transform)
    together = LANES // edge

    @inner
    def run_in_row(conv: Any, first: Any, last: Any) -> Any:
        """Row and column of a tile, and the number of tiles from it to the end of the row or `last`."""
        across = (conv.out_width + edge - 1) // edge
        column = first % across
        return first // across, column, min(min(across - column, last - first), ROW_TILES)

    @inner
    def transform_input(
        conv: Any, layout: Any, image: Any, first: Any, last: Any, channel: Any, v: Any, spare: Any
    ) -> None:
        """Transform 16 channels of the input tiles `[first, last)`."""
        channels, height, width, pad_y, pad_x = conv.channels, conv.height, conv.width, conv.pad_y, conv.pad_x
        pitch = layout.pitch
        source, plane = conv.source + 4 * (image * channels + channel) * height * width, 4 * height * width
        apart = (last - first) * pitch
        at, above, before = first, -1, -1
        while at < last:
            row, column, count = run_in_row(conv, at, last)
            wide = edge * count + 2
            line = VECTOR * ((wide + LANES - 1) // LANES * LANES)
            half, start = spare + input_edge * line, 0
            if column == above and count == before:
                for j in range(0, 2 * line, VECTOR):
                    store_f32(spare + j, load_f32(spare + edge * line + j))
                start = 2
            above, before = column, count
            for i in range(start, input_edge):
                y = edge * row + i - pad_y
                inside = width if y >= 0 and y < height else 0
                if layout.blocks_in != 0:
                    _row_of_blocks(source + VECTOR * y * width, edge * column - pad_x, inside, wide, spare + i * line)
                else:
                    _row(
                        source + 4 * y * width,
                        plane,
                        channels - channel,
                        edge * column - pad_x,
                        inside,
                        wide,
                        spare + i * line,
                    )
            for index in range(count):
                for j in range(input_edge):
                    input_transform(spare + VECTOR * (edge * index + j), line, half + VECTOR * j, input_edge * VECTOR)
                target = v + (at - first + index) * pitch + 4 * channel
                for i in range(input_edge):
                    input_transform(half + input_edge * VECTOR * i, VECTOR, target + input_edge * i * apart, apart)
            at += count

    @inner
    def transform_output(
        conv: Any,
        layout: Any,
        image: Any,
        output: Any,
        row: Any,
        column: Any,
        count: Any,
        products: Any,
        apart: Any,
        spare: Any,
    ) -> None:
        """Transform the products of a row of tiles to up to 16 outputs, add biases and clamp."""
        outputs, out_height, out_width = conv.outputs, conv.out_height, conv.out_width
        low, high = splat(np.float32(conv.epilogue.low)), splat(np.float32(conv.epilogue.high))
        bias, plane = load_f32(conv.bias + 4 * output), 4 * out_height * out_width
        made, line = spare + edge * input_edge * VECTOR, LANES * VECTOR
        for begin in range(0, count, together):
            for index in range(min(together, count - begin)):
                source = products + 4 * PANEL * (begin + index)
                for j in range(input_edge):
                    store(
                        output_transform(source + apart * j, input_edge * apart),
                        spare + VECTOR * j,
                        input_edge * VECTOR,
                    )
                for i in range(edge):
                    found = output_transform(spare + input_edge * VECTOR * i, VECTOR)
                    store(clamp(found, bias, low, high), made + edge * VECTOR * index + line * i, VECTOR)
            x = edge * (column + begin)
            lanes = _lanes(0, min(out_width - x, edge * (count - begin)))
            for i in range(min(edge, out_height - edge * row)):
                base, at = conv.target + (image * outputs + output) * plane, (edge * row + i) * out_width + x
                if layout.blocks_out != 0:
                    for j in range(min(out_width - x, edge * (count - begin), LANES)):
                        store_f32(base + VECTOR * (at + j), load_f32(made + line * i + VECTOR * j))
                else:
                    store_columns(made + line * i, VECTOR, base + 4 * at, plane, min(LANES, outputs - output), lanes)

    @inner
    def prefetch_results(
        conv: Any, layout: Any, image: Any, output: Any, panel_outputs: Any, first: Any, last: Any
    ) -> None:
        """Prefetch the memory of results and residuals."""
        out_height, out_width = conv.out_height, conv.out_width
        block = LANES if layout.blocks_out != 0 else 1
        plane, at = 4 * out_height * out_width, first
        while at < last:
            row, column, count = run_in_row(conv, at, last)
            at += count
            wide = min(edge * count, out_width - edge * column)
            for y in range(edge * row, min(edge * row + edge, out_height)):
                place = (image * conv.outputs + output) * plane + 4 * block * (y * out_width + edge * column)
                prefetch_rows(
                    conv.epilogue, conv.target, place, block * plane, panel_outputs // block, 4 * block * wide
                )

    @inner
    def panel(
        conv: Any,
        layout: Any,
        weights: Any,
        image: Any,
        index: Any,
        first: Any,
        last: Any,
        v: Any,
        apart: Any,
        products: Any,
    ) -> None:
        """Compute a panel of outputs of the tiles `[first, last)`: products, output transform, epilogue. Matrices are
        `apart` bytes apart."""
        channels, outputs, out_height, out_width = conv.channels, conv.outputs, conv.out_height, conv.out_width
        pitch = layout.pitch
        rows, output = last - first, index * PANEL
        panel_outputs = min(PANEL, outputs - output)
        width = NARROW if panel_outputs <= NARROW else PANEL
        none, least, limit = conv.zeros, np.float32(-np.inf), np.float32(np.inf)
        prefetch_results(conv, layout, image, output, panel_outputs, first, last)
        for place in range(points):
            made, source = products + 4 * PANEL * rows * place, weights + 4 * PANEL * channels * place
            column_of_tiles(
                v + place * apart,
                pitch,
                4,
                source,
                channels,
                made,
                4 * PANEL,
                0,
                rows,
                width,
                none,
                0,
                none,
                least,
                limit,
                products,
                PREFETCH_DISTANCE,
            )
        plane, spare, at = 4 * out_height * out_width, products + 4 * PANEL * points * rows, first
        while at < last:
            row, column, count = run_in_row(conv, at, last)
            source = products + 4 * PANEL * (at - first)
            at += count
            for half in range(0, panel_outputs, NARROW):
                transform_output(
                    conv, layout, image, output + half, row, column, count, source + 4 * half, 4 * PANEL * rows, spare
                )
            wide, block = min(edge * count, out_width - edge * column), LANES if layout.blocks_out != 0 else 1
            for y in range(edge * row, min(edge * row + edge, out_height)):
                base = (image * outputs + output) * plane + 4 * block * (y * out_width + edge * column)
                apply_epilogue(conv.epilogue, conv.target, base, block * plane, panel_outputs // block, block * wide)

    @range_kernel(unroll=False)
    def winograd_fused(conv: Convolution, layout: Layout, part: int, parts: int) -> None:
        """All stages, block by block of tiles; kernels are transformed panels, biases padded; slices are blocks of an
        image."""
        blocks, total, pitch, nbytes = conv.slices, layout.total, layout.pitch, 4 * PANEL * points * conv.channels
        v = conv.scratch + part * layout.part_bytes
        products = v + layout.max_tiles * points * pitch
        begin, end = share(conv.images * blocks, part, parts)
        for unit in range(begin, end):
            image = unit // blocks
            first, last = share(total, unit % blocks, blocks)
            for channel in range(0, conv.channels, LANES):
                transform_input(conv, layout, image, first, last, channel, v, products)
            for index in range((conv.outputs + PANEL - 1) // PANEL):
                panel(
                    conv,
                    layout,
                    conv.weights + index * nbytes,
                    image,
                    index,
                    first,
                    last,
                    v,
                    (last - first) * pitch,
                    products,
                )

    @range_kernel(unroll=False)
    def winograd_input(conv: Convolution, layout: Layout, part: int, parts: int) -> None:
        """Input transform, 16 channels of an image at a time."""
        groups, total = (conv.channels + LANES - 1) // LANES, layout.total
        begin, end = share(conv.images * groups, part, parts)
        for unit in range(begin, end):
            image = unit // groups
            v = layout.matrices + image * total * points * layout.pitch
            transform_input(
                conv, layout, image, 0, total, unit % groups * LANES, v, conv.scratch + part * layout.part_bytes
            )

    @range_kernel(unroll=False)
    def winograd_multiply(conv: Convolution, layout: Layout, part: int, parts: int) -> None:
        """Products and output transform of pieces of an image per panel of outputs; kernels that are not transformed
        are so here, a panel at a time."""
        pieces, total, pitch, kind = conv.slices, layout.total, layout.pitch, layout.kind
        nbytes = 4 * PANEL * points * conv.channels
        scratch, held = conv.scratch + part * layout.part_bytes, -1
        begin, end = share((conv.outputs + PANEL - 1) // PANEL * conv.images * pieces, part, parts)
        for unit in range(begin, end):
            image, index = unit // pieces % conv.images, unit // pieces // conv.images
            weights = conv.weights + index * nbytes
            if kind != TRANSFORMED:
                if index != held:
                    kernels(kind, conv.weights + panel_bytes(kind, conv.channels) * index, scratch, conv.channels)
                weights, held = scratch, index
            first, last = share(total, unit % pieces, pieces)
            v = layout.matrices + (image * total * points + first) * pitch
            panel(
                conv,
                layout,
                weights,
                image,
                index,
                first,
                last,
                v,
                total * pitch,
                scratch if kind == TRANSFORMED else scratch + nbytes,
            )

    @range_kernel
    def winograd_weights(
        narrow: Address, made: Address, panels: int, channels: int, kind: int, part: int, parts: int
    ) -> None:
        """Transform `panels` panels of kernels."""
        first, last = share(panels, part, parts)
        for index in range(first, last):
            source, target = panel_bytes(kind, channels) * index, 4 * PANEL * points * channels * index
            kernels(kind, narrow + source, made + target, channels)

    return Kernels(transform, winograd_fused, winograd_input, winograd_multiply, winograd_weights)


_KERNELS = {transform.edge: _kernels(transform) for transform in (F4, F2)}


def _tile_count(transform: TileTransform, geometry: Sequence[int]) -> int:
    """Tiles of an image."""
    return -(-geometry[4] // transform.edge) * -(-geometry[5] // transform.edge)


def choose_transform(w: Buffer, geometry: Sequence[int], groups: int) -> TileTransform | None:
    """The transform for a geometry (input, output, kernel, strides, dilations, padding); None if Winograd does not pay.
    Planes that do not fill a tile take no larger ones: rounding errors are four times those of a direct sum there."""
    plain = tuple(geometry[6:15]) == (1, 3, 3, 1, 1, 1, 1, 1, 1) and geometry[3] == 1 and groups == 1
    outputs, channels = w.shape[:2]
    if not ("avx2" in features() and plain and min(outputs, channels) >= MIN_CHANNELS):
        return None
    costs: dict[float, TileTransform | None] = {geometry[4] * geometry[5] * w.count: None}
    for transform in (F2, F4):
        count, nbytes = _tile_count(transform, geometry), w.count * transform.points // 9 * 4
        if nbytes <= MAX_WEIGHT_BYTES * count and (transform is F2 or min(geometry[4:6]) >= transform.edge):
            products = channels * outputs * (count if nbytes <= CORE_CACHE_BYTES else max(count, TILES_PER_WEIGHT_READ))
            costs[transform.points * (products + TRANSFORM_COST * count * (channels + outputs))] = transform
    return costs[min(costs)]


def _weights(problem: Problem, transform: TileTransform, total: int) -> tuple[Buffer, list[Launch], int]:
    """Kernels, launches that transform them ahead, and bytes per panel if they are transformed on use."""
    step, panels, nbytes = problem.step, -(-problem.outputs // PANEL), 4 * PANEL * transform.points * problem.channels
    narrow = step.packed_16bit(1, "winograd kernels", pack_kernels)
    if narrow is None and (panels * nbytes < LARGE_BYTES or total < MANY_TILES):
        return step.packed(1, ("winograd", transform.edge), transform.pack_weights), [], 0
    narrow = narrow or step.packed(1, "winograd kernels", pack_kernels)
    if total <= (MAX_TILES if panels * nbytes <= SHARED_CACHE_BYTES else STREAMED_TILES):
        return narrow, [], nbytes
    made = step.scratch(panels * nbytes)
    launch = Launch(
        _KERNELS[transform.edge].weights_kernel,
        step.parts(panels, narrow.count),
        narrow=narrow,
        made=made,
        panels=panels,
        channels=problem.channels,
        kind=DTYPE_CODES[narrow.dtype.name],
    )
    return made, [launch], 0


def plan_winograd(problem: Problem) -> ConvPlan | None:
    """Launches by Winograd for 3 x 3 kernels, None if another algorithm is faster."""
    transform = choose_transform(problem.w, problem.geometry, problem.groups) if problem.constant else None
    if transform is None:
        return None
    step, kernels, total = problem.step, _KERNELS[transform.edge], _tile_count(transform, problem.geometry)
    pitch = 4 * (-(-problem.channels // LANES) + 1) * LANES
    (weights, before, held), bias = _weights(problem, transform, total), problem.padded_bias()
    columns = min(-(-problem.lengths[2] // transform.edge), ROW_TILES)
    lines = (
        transform.input_edge * VECTOR * (-(-(transform.edge * columns + 2) // LANES) * LANES)
        + transform.points * VECTOR
    )
    transposed_bytes = transform.edge * (transform.input_edge + LANES) * VECTOR
    layouts = {"blocks_in": int(problem.blocks_in), "blocks_out": int(problem.blocks_out)}
    work = problem.work * transform.points / (9 * transform.edge**2) * 1.2
    min_tiles = MIN_TILES_ONE_PANEL if problem.outputs <= PANEL else MIN_TILES // 2
    shared = weights.nbytes <= SHARED_CACHE_BYTES
    if not held and total >= min_tiles * step.threads and (shared or total > STREAMED_TILES):
        most = MAX_TILES if shared else STREAMED_BLOCK
        if weights.nbytes <= CORE_CACHE_BYTES:
            most = min(most, max(MIN_TILES, BLOCK_BYTES // (transform.points * pitch)))
        blocks = -(-total // most)
        blocks = -(-blocks // step.threads) * step.threads
        max_tiles = -(-total // blocks)
        parts = min(2 * step.threads, problem.parts(problem.images * blocks, work))
        each = max_tiles * transform.points * pitch + max(
            lines, 4 * PANEL * transform.points * max_tiles + transposed_bytes
        )
        whole = step.scratch(parts * each)

        def fused(epilogue: Epilogue, result: Buffer) -> Launch:
            head = problem.arguments(problem.x, weights, result, bias, blocks, whole, epilogue)
            layout = Layout(total, max_tiles, pitch, each, 0, TRANSFORMED, **layouts)
            return Launch(kernels.fused, parts, conv=head, layout=layout)

        return before, fused
    panels_of, groups = problem.images * -(-problem.outputs // PANEL), problem.images * -(-problem.channels // LANES)
    matrices = step.scratch(problem.images * total * transform.points * pitch)
    pieces = 1 if step.threads == 1 else min(-(-total // 4), -(-PIECES_PER_THREAD * step.threads // panels_of))
    input_parts = problem.parts(groups, problem.images * problem.channels * total * transform.points)
    multiply_parts = problem.parts(panels_of * pieces, work)
    head = problem.arguments(problem.x, 0, 0, None, 0, step.scratch(input_parts * lines))
    first = Launch(
        kernels.input,
        input_parts,
        conv=head,
        layout=Layout(total, total, pitch, lines, matrices, TRANSFORMED, **layouts),
    )
    part_bytes = 4 * PANEL * transform.points * -(-total // pieces) + transposed_bytes + held
    scratch, kind = step.scratch(multiply_parts * part_bytes), DTYPE_CODES[weights.dtype.name] if held else TRANSFORMED

    def unfused(epilogue: Epilogue, result: Buffer) -> Launch:
        head = problem.arguments(problem.x, weights, result, bias, pieces, scratch, epilogue)
        layout = Layout(total, total, pitch, part_bytes, matrices, kind, **layouts)
        return Launch(kernels.multiply, multiply_parts, conv=head, layout=layout)

    return [*before, first], unfused
