"""Direct convolution vectorized along output rows: for few output channels, few input channels and long rows.

The input of a block of outputs is padded in a core's cache. Its rows are split into one row for each phase of the
stride, so that neighbouring outputs read neighbouring elements at every tap. Elements of the kernels are broadcast.
Windows are not packed, and results are not transposed.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.jit.address import f32, share
from ....runtime.jit.isa import features
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ....runtime.simd.llvm_vector import F32, I32, I64, Code, vector_type
from ....runtime.simd.memory import evens, load_f32, odds, store_f32
from ....runtime.simd.vector import LANES
from ..gemm.epilogue import Epilogue, apply_epilogue
from ..gemm.microkernel_f32 import WIDE
from ..gemm.register_tile import tiles_by_rows
from .depthwise import fill
from .problem import Convolution, ConvPlan, Problem

WIDTH, HEIGHT, VECTORS = (
    (16, 8, {8: 3, 4: 6, 2: 8, 1: 8})
    if WIDE
    else (8, 4, {4: 3, 2: 6, 1: 8})
    if "avx2" in features()
    else (4, 4, {4: 2, 2: 4, 1: 6})
)
"""Lanes of a register, rows of packed kernels, and registers of each row by the rows of a tile."""
MIN_COLUMNS, MAX_COLUMNS = 192, 1536
"""Outputs of a row in a block, where rows are longer."""
BLOCK_BYTES = 256 << 10
"""Bytes of a block's padded input."""
MAX_WEIGHT_BYTES = 1 << 20
"""Maximum bytes of kernels, which are read for each row of a block."""
BLOCKS_PER_THREAD = 8
"""Blocks that are wanted for each thread."""
MAX_STRIDE = 4
"""Stride along rows up to which they are split."""
LINE = 16
"""Elements of a cache line."""
MAX_TILE_BYTES = 24 << 10
"""Maximum bytes of the input of a tile where output channels would fill panels."""
COPY_COST, RESULT_COST = 4, 4 if WIDE else 16
"""Cost of copying an element of the input, and of transposing a result in other algorithms, in products."""
FEW_OUTPUTS = 16
"""Output channels below which the panels of other algorithms are mostly empty."""


class RowTile(NamedTuple):
    """Outputs of a few channels along a row; addresses and steps are in bytes.

    Attributes:
        weights: elements of the first channel, `HEIGHT` elements apart from tap to tap.
        source, taps: address of the first output's first element, and offsets of all taps.
        target, target_row: first result, and bytes from channel to channel.
    """

    weights: Any
    source: Any
    taps: Any
    depth: Any
    target: Any
    target_row: Any
    bias: Any
    bias_row: Any
    low: float
    high: float


def _splat(code: Code, value: Any) -> Any:
    kind = vector_type(F32, WIDTH)
    undefined = ir.Constant(kind, ir.Undefined)
    one = code.builder.insert_element(undefined, value, ir.Constant(I32, 0))
    return code.builder.shuffle_vector(one, undefined, ir.Constant(vector_type(I32, WIDTH), [0] * WIDTH))


def _fma(code: Code, a: Any, b: Any, total: Any) -> Any:
    if "fma" not in features():
        return code.builder.fadd(code.builder.fmul(a, b), total)
    return code.call(f"llvm.fma.v{WIDTH}f32", total.type, a, b, total)


def _tiles(vectors: dict[int, int]) -> Any:
    """Tiles with so many registers of each row, by their rows."""

    def write(code: Code, rows: int, tile: RowTile) -> None:
        build, count, kind = code.builder, vectors[rows], vector_type(F32, WIDTH)
        starts = [
            _splat(code, code.load(build.add(tile.bias, build.mul(tile.bias_row, code.word(row))), F32))
            for row in range(rows)
        ]

        def tap(index: Any, held: list[Any]) -> list[Any]:
            """The shorter side of the tile stays in registers, with one vector of the other at a time."""
            shift = code.load(build.add(tile.taps, build.mul(index, code.word(8))), I64)
            place = build.add(tile.source, shift)
            kernels = build.add(tile.weights, build.mul(index, code.word(4 * HEIGHT)))

            def factor(row: int) -> Any:
                return _splat(code, code.load(kernels, F32, 4 * row))

            def column(at: int) -> Any:
                return code.load(place, kind, 4 * WIDTH * at)

            sums = list(held)
            if rows < count:
                factors = [factor(row) for row in range(rows)]
                for at in range(count):
                    vector = column(at)
                    for total, value in zip(range(at, rows * count, count), factors, strict=True):
                        sums[total] = _fma(code, value, vector, held[total])
            else:
                columns = [column(at) for at in range(count)]
                for row in range(rows):
                    value = factor(row)
                    for total, vector in enumerate(columns, row * count):
                        sums[total] = _fma(code, value, vector, held[total])
            return sums

        sums = code.repeat(tile.depth, [start for start in starts for _ in range(count)], tap)
        low, high = _splat(code, tile.low), _splat(code, tile.high)
        for index, total in enumerate(sums):
            raised = build.select(build.fcmp_ordered("<", total, low), low, total)
            bounded = build.select(build.fcmp_ordered(">", raised, high), high, raised)
            row, column = divmod(index, count)
            code.store(bounded, build.add(tile.target, build.mul(tile.target_row, code.word(row))), 4 * WIDTH * column)

    return tiles_by_rows(tuple(vectors), RowTile, write)


_HALF_VECTORS = {rows: -(-vectors // 2) for rows, vectors in VECTORS.items()}
_wide_tiles, _half_tiles, _narrow_tiles = (
    _tiles(vectors) for vectors in (VECTORS, _HALF_VECTORS, dict.fromkeys(VECTORS, 1))
)
_SIZES = tuple((rows, WIDTH * vectors, WIDTH * _HALF_VECTORS[rows]) for rows, vectors in VECTORS.items())


@inner
def _tile_size(left: int) -> tuple[int, int, int]:
    """Rows of the tallest tile that `left` rows hold, its columns, and those of the half tile."""
    for size in _SIZES:
        if left >= size[0]:
            return size
    return _SIZES[-1]


@inner
def _split_row(source: Any, begin: Any, width: Any, target: Any, stride: Any, wide: Any) -> None:
    """Elements of an input row from element `begin` on, negative ones and those after the last being zero, as
    `stride` rows of `wide`, each with those that are a stride apart."""
    row = f32(source)
    least = min(wide, max(0, (-begin + stride - 1) // stride))
    most = max(least, min(wide, (width - begin) // stride))
    for phase in range(stride):
        line = f32(target + 4 * phase * wide)
        for index in range(least):
            at = begin + stride * index + phase
            line[index] = row[at] if 0 <= at < width else np.float32(0)
        for index in range(most, wide):
            at = begin + stride * index + phase
            line[index] = row[at] if 0 <= at < width else np.float32(0)
    index = least
    if stride == 1:
        while index + LANES <= most:
            store_f32(target + 4 * index, load_f32(source + 4 * (begin + index)))
            index += LANES
    if stride == 2:
        while index + LANES <= most:
            place = source + 4 * (begin + 2 * index)
            low, high = load_f32(place), load_f32(place + 4 * LANES)
            store_f32(target + 4 * index, evens(low, high))
            store_f32(target + 4 * (wide + index), odds(low, high))
            index += LANES
    for phase in range(stride):
        line = f32(target + 4 * phase * wide)
        for at in range(index, most):
            line[at] = row[begin + stride * at + phase]


@range_kernel(unroll=False)
def direct_rows(
    conv: Convolution, taps: Address, block_columns: int, wide: int, pitch: int, row_step: int, part: int, parts: int
) -> None:
    """Kernels are [groups, outputs / HEIGHT, taps, HEIGHT]; slices are rows of a block, whose input rows have `wide`
    elements for each phase; channels of a block are `pitch` bytes apart, its rows `row_step` rows."""
    groups, channels, outputs, height, width = conv.groups, conv.channels, conv.outputs, conv.height, conv.width
    out_height, out_width, stride, block_rows = conv.out_height, conv.out_width, conv.stride_x, conv.slices
    low, high = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
    depth, plane, row_bytes = channels * conv.kernel_y * conv.kernel_x, 4 * out_height * out_width, 4 * stride * wide
    padded = conv.scratch + part * (channels * pitch + 4 * LINE)
    across, down = (
        (out_width + block_columns - 1) // block_columns,
        ((out_height + row_step - 1) // row_step + block_rows - 1) // block_rows,
    )
    phases = min(row_step, out_height)
    first, last = share(conv.images * groups * phases * down * across, part, parts)
    panels = (outputs + HEIGHT - 1) // HEIGHT
    for unit in range(first, last):
        left, strip = unit % across * block_columns, unit // across
        top = strip % down * block_rows * row_step + strip // down % phases
        image, group = strip // down // phases // groups, strip // down // phases % groups
        columns, rows = (
            min(block_columns, out_width - left),
            min(block_rows, (out_height - top + row_step - 1) // row_step),
        )
        begin_x, begin_y = left * stride - conv.pad_x, top * conv.stride_y - conv.pad_y
        tall = (rows - 1) * conv.stride_y + (conv.kernel_y - 1) * conv.dilation_y + 1
        for channel in range(channels):
            source = conv.source + 4 * ((image * groups + group) * channels + channel) * height * width
            band = padded + channel * pitch
            for row in range(tall):
                at = begin_y + row * row_step
                if at < 0 or at >= height:
                    fill(band + row * row_bytes, stride * wide, np.float32(0))
                else:
                    _split_row(source + 4 * at * width, begin_x, width, band + row * row_bytes, stride, wide)
        made = conv.target + (image * groups + group) * outputs * plane + 4 * (top * out_width + left)
        for row in range(rows):
            source, target, output = padded + row * conv.stride_y * row_bytes, made + 4 * row * row_step * out_width, 0
            while output < outputs:
                size, whole, half = _tile_size(min(HEIGHT - output % HEIGHT, outputs - output))
                weights = conv.weights + 4 * HEIGHT * depth * (group * panels + output // HEIGHT)
                weights += 4 * (output % HEIGHT)
                bias, line = conv.bias + (group * outputs + output) * conv.bias_step, target + output * plane
                x = 0
                while x < columns:
                    rest = columns - x
                    if columns >= whole and rest > half:
                        at = 4 * min(x, columns - whole)
                        _wide_tiles(
                            size, weights, source + at, taps, depth, line + at, plane, bias, conv.bias_step, low, high
                        )
                        x += whole
                    elif columns >= half and rest > WIDTH:
                        at = 4 * min(x, columns - half)
                        _half_tiles(
                            size, weights, source + at, taps, depth, line + at, plane, bias, conv.bias_step, low, high
                        )
                        x += half
                    else:
                        at = 4 * min(x, columns - WIDTH)
                        _narrow_tiles(
                            size, weights, source + at, taps, depth, line + at, plane, bias, conv.bias_step, low, high
                        )
                        x += WIDTH
                apply_epilogue(conv.epilogue, conv.target, line - conv.target, plane, size, columns)
                output += size


def pack_rows(groups: int, w: np.ndarray) -> np.ndarray:
    """Kernels [out, channels, taps...] as [groups, out / groups / HEIGHT, channels x taps, HEIGHT], zero-padded."""
    rows = w.reshape(groups, len(w) // groups, -1)
    panels = -(-rows.shape[1] // HEIGHT)
    padded = np.zeros((groups, panels * HEIGHT, rows.shape[2]), np.float32)
    padded[:, : rows.shape[1]] = rows
    return np.ascontiguousarray(padded.reshape(groups, panels, HEIGHT, -1).transpose(0, 1, 3, 2))


def _is_faster(problem: Problem) -> bool:
    """Whether few outputs leave panels of them empty, or the input of a tile stays in the first cache and an output is
    estimated to cost less than with products of panels."""
    if problem.channels == problem.outputs == 1 and problem.groups > 1:
        return False
    kernel, stride, dilation = (problem.geometry[at : at + 3] for at in (6, 9, 12))
    width, (_, whole, half) = problem.geometry[5], _SIZES[0]
    line = 4 * (whole + (kernel[2] - 1) * dilation[2] // stride[2] + LINE) * min(kernel[2], stride[2])
    if problem.outputs < FEW_OUTPUTS:
        return True
    if width < whole or problem.channels * kernel[1] * line > MAX_TILE_BYTES:
        return False
    tiles, rest = divmod(width, whole)
    summed = whole * tiles + (whole if rest > half else half if rest > WIDTH else WIDTH if rest else 0)
    products, copies = problem.depth * problem.outputs, problem.channels * stride[1] * stride[2]
    return products * summed / width + COPY_COST * copies < products + RESULT_COST * problem.outputs


def _block_columns(width: int, longest: int) -> int:
    """Outputs of a row in a block: about `longest` at most, and no block narrower than a register."""
    columns = -(-width // -(-width // longest))
    while 0 < width % columns < WIDTH:
        columns += 1
    return columns


def plan_direct_rows(problem: Problem) -> ConvPlan | None:
    """Launch of a convolution with constant kernels over one or two axes; None if other algorithms are faster."""
    geometry, step = problem.geometry, problem.step
    out, kernel, strides, dilations = (geometry[at : at + 3] for at in range(3, 15, 3))
    if not problem.constant or problem.blocked or not problem.positions or not problem.x.count:
        return None
    if not problem.planar or out[2] < WIDTH or strides[2] > MAX_STRIDE:
        return None
    if not _is_faster(problem):
        return None
    dense, row_step = problem.without_row_dilation()
    down = dense.geometry[13]
    stride, reach, reach_y = strides[2], (kernel[2] - 1) * dilations[2], (kernel[1] - 1) * down + 1
    longest = BLOCK_BYTES // (4 * stride * problem.channels * reach_y) - reach // stride
    longest = min(max(longest, MIN_COLUMNS), MAX_COLUMNS)
    columns = _block_columns(out[2], longest)
    wide = columns + reach // stride
    row_bytes = 4 * stride * wide
    rows = max(1, (BLOCK_BYTES // (problem.channels * row_bytes) - reach_y) // strides[1] + 1)
    rows = max(
        1,
        min(
            rows, problem.images * problem.groups * out[1] // (BLOCKS_PER_THREAD * step.threads), -(-out[1] // row_step)
        ),
    )
    tall = (rows - 1) * strides[1] + reach_y
    pitch = 4 * LINE * (-(-tall * row_bytes // (4 * LINE)) | 1)
    panels = -(-problem.outputs // HEIGHT)
    if 4 * HEIGHT * panels * problem.depth > MAX_WEIGHT_BYTES:
        return None
    across = np.arange(kernel[2]) * dilations[2]
    taps = (
        pitch * np.arange(problem.channels)[:, None, None]
        + row_bytes * (np.arange(kernel[1]) * down)[:, None]
        + 4 * (across % stride * wide + across // stride)
    )
    units = (
        problem.images
        * problem.groups
        * min(row_step, out[1])
        * -(-out[1] // (row_step * rows))
        * -(-out[2] // columns)
    )
    parts = problem.parts(units, problem.work)
    weights = step.packed(1, ("rows", HEIGHT, problem.groups), functools.partial(pack_rows, problem.groups))
    offsets = step.constant_buffer(taps.reshape(-1))
    scratch = step.scratch(parts * (problem.channels * pitch + 4 * LINE))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            direct_rows,
            parts,
            conv=dense.arguments(problem.x, weights, result, problem.bias, rows, scratch, epilogue),
            taps=offsets,
            block_columns=columns,
            wide=wide,
            pitch=pitch,
            row_step=row_step,
        )

    return [], launch
