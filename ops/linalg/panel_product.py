"""Products of f32 rows and a matrix that is packed into panels once, with an epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...runtime.jit.address import share
from ...runtime.jit.isa import features
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Step
from ...runtime.simd.memory import load_f32, load_masked, prefetch_read, store_f32
from ..kernels.gemm.epilogue import Epilogue, EpilogueArguments, apply_epilogue_rows, launch_with_epilogue
from ..kernels.gemm.microkernel_f32 import NARROW, PREFETCH_DISTANCE, ROWS, WIDE, column_of_tiles, dense_tile, panels
from ..kernels.gemm.register_tile import PANEL
from ..kernels.strided_copy import copy

F32 = np.dtype(np.float32)

ROW_BLOCK = 96
"""Rows that a part computes at a time."""
DENSE = not WIDE and "avx2" in features()
"""Whether panels have `NARROW` columns: at AVX2 a tile has no more, and reads adjacent lines of the second cache."""
PRODUCT_PANEL = NARROW if DENSE else PANEL
"""Columns of a panel of a packed matrix."""
DEPTH_BLOCK = 768
"""Elements of all rows of a part that meet a panel before the next ones, at AVX2: such a piece of a panel, 48 KiB,
stays in the second cache with the rows that it meets."""
FINER = 2
"""Products are cut into this many times the usual parts: small ones follow each other, and threads wait awake."""
COPIED = 2 * PANEL
"""Rows, columns and depth from which factors that are not constants are copied before they are multiplied."""
PAGE = 4096
"""Bytes from row to row of which rows share a set of the first cache."""
LINES = 8
"""Rows that are copied into all panels before the next ones: as many streams of memory as a processor foresees."""
FEWEST_READERS = 4
"""Nodes that read a matrix from which one copy of it pays."""
APART = 16
"""Elements between copied rows, which keep rows of a page from sharing sets of the first cache."""


@range_kernel
def packed_product(
    a: Address,
    b: Address,
    c: Address,
    bias: Address,
    rows: int,
    columns: int,
    depth: int,
    a_row: int,
    a_step: int,
    zero: Address,
    scratch: Address,
    epilogue: EpilogueArguments,
    part: int,
    parts: int,
) -> None:
    """c[rows, columns] = a[rows, depth] b[depth, columns] + bias, b in panels; `a_row` and `a_step` are bytes from row
    to row of a, and in a row."""
    spare = scratch + part * 4 * PANEL * ROWS
    count = (columns + PANEL - 1) // PANEL
    tall = (rows + ROW_BLOCK - 1) // ROW_BLOCK
    low, high = np.float32(epilogue.low), np.float32(epilogue.high)
    first, last = share(count * tall, part, parts)
    for unit in range(first, last):
        panel, block = unit // tall, unit % tall
        width = min(PANEL, columns - panel * PANEL)
        start, end = block * ROW_BLOCK, min(rows, (block + 1) * ROW_BLOCK)
        column_of_tiles(
            a,
            a_row,
            a_step,
            b + panel * depth * 4 * PANEL,
            depth,
            c + panel * 4 * PANEL,
            columns * 4,
            start,
            end,
            width,
            zero,
            0,
            bias + panel * 4 * PANEL,
            low,
            high,
            spare,
            PREFETCH_DISTANCE,
        )
        apply_epilogue_rows(
            epilogue,
            c + 4 * (start * columns + panel * PANEL),
            4 * columns,
            end - start,
            width,
            start * epilogue.added_row + 4 * panel * PANEL,
            epilogue.added_row,
        )


@range_kernel
def dense_product(
    a: Address,
    b: Address,
    c: Address,
    bias: Address,
    rows: int,
    columns: int,
    depth: int,
    a_row: int,
    a_step: int,
    zero: Address,
    negative_zero: Address,
    scratch: Address,
    epilogue: EpilogueArguments,
    part: int,
    parts: int,
) -> None:
    """`packed_product` of panels of `NARROW` columns. Sums of a piece of the depth go on from those in c, to which -0
    adds nothing."""
    spare = scratch + part * 4 * PANEL * ROWS
    tall = (rows + ROW_BLOCK - 1) // ROW_BLOCK
    none, most = np.float32(-np.inf), np.float32(np.inf)
    low, high = np.float32(epilogue.low), np.float32(epilogue.high)
    first, last = share((columns + NARROW - 1) // NARROW * tall, part, parts)
    unit = first
    while unit < last:
        panel, block = unit // tall, unit % tall
        blocks = min(tall - block, last - unit)
        unit += blocks
        column, done = panel * NARROW, 0
        width = min(NARROW, columns - column)
        start, end = block * ROW_BLOCK, min(rows, (block + blocks) * ROW_BLOCK)
        while done == 0 or done < depth:
            many = min(DEPTH_BLOCK, depth - done)
            begins, ends = done == 0, done + many >= depth
            row = start
            while row < end:
                to = c + 4 * (row * columns + column)
                count = dense_tile(
                    end - row,
                    a + row * a_row + done * a_step,
                    a_row,
                    a_step,
                    b + (column * depth + done * NARROW) * 4,
                    many,
                    to,
                    columns * 4,
                    width,
                    zero if begins else negative_zero,
                    bias + 4 * column if begins else to,
                    0 if begins else columns * 4,
                    low if ends else none,
                    high if ends else most,
                    spare,
                    PREFETCH_DISTANCE if row == start else 0,
                )
                if ends:
                    added = row * epilogue.added_row + 4 * column
                    apply_epilogue_rows(epilogue, to, 4 * columns, count, width, added, epilogue.added_row)
                row += count
            done += max(many, 1)


def zeros(step: Step) -> Buffer:
    """A panel's width of zeros."""
    return step.constant_buffer(np.zeros(PANEL, np.float32))


def product_panels(matrix: np.ndarray) -> np.ndarray:
    """A matrix [depth, columns] as panels of `PRODUCT_PANEL` columns."""
    return panels(matrix, PRODUCT_PANEL)


@range_kernel
def pack_panels(
    b: Address, packed: Address, depth: int, columns: int, b_row: int, panel_columns: int, part: int, parts: int
) -> None:
    """Rows of `columns` elements, `b_row` bytes apart, as panels; what the last one has after them is zero."""
    count = (columns + panel_columns - 1) // panel_columns
    first, last = share((depth + LINES - 1) // LINES, part, parts)
    for unit in range(first, last):
        start, end = unit * LINES, min(depth, unit * LINES + LINES)
        for panel in range(count):
            for line in range(start, end):
                source = b + line * b_row + panel * 4 * panel_columns
                target = packed + (panel * depth + line) * 4 * panel_columns
                for column in range(0, panel_columns, NARROW):
                    width = columns - panel * panel_columns - column
                    if width >= NARROW:
                        prefetch_read(source + LINES * b_row + 4 * column)
                        store_f32(target + 4 * column, load_f32(source + 4 * column))
                    else:
                        part_of = load_masked(source + 4 * column, (1 << max(width, 0)) - 1)
                        store_f32(target + 4 * column, part_of)


def copied_into_panels(
    step: Step, b: Buffer, shape: tuple[int, int], strides: tuple[int, int], panel: int = PRODUCT_PANEL
) -> tuple[Buffer, list[Launch]]:
    """A matrix of `shape` [depth, columns] whose elements lie `strides` apart, in panels of `panel` columns, and what
    copies it there. What a panel has after the last column is undefined."""
    depth, columns = shape
    whole, rest = divmod(columns, panel)
    packed = step.temporary(F32, (whole + (rest > 0), depth, panel))
    if strides[1] == 1:
        parts = step.parts(-(-depth // LINES), depth * columns / 2, FINER)
        return packed, [
            Launch(
                pack_panels,
                parts,
                b=b,
                packed=packed,
                depth=depth,
                columns=columns,
                b_row=4 * strides[0],
                panel_columns=panel,
            )
        ]
    steps, launches = (panel * strides[1], *strides), []
    if whole:
        launches.append(copy(step, b, packed, (whole, depth, panel), steps, packed.strides))
    if rest:
        source = b.view((b.count - whole * steps[0],), whole * steps[0])
        target = packed.view((1, depth, panel), whole * packed.strides[0])
        launches.append(copy(step, source, target, (1, depth, rest), steps, packed.strides))
    return packed, launches


def variable_product(
    step: Step,
    buffers: tuple[Buffer, Buffer, Buffer],
    lengths: tuple[int, int, int],
    strides: tuple[int, int, int, int],
) -> list[Launch]:
    """A product of two large matrices that are not constants: the right one is copied into panels first, and the left
    one into rows if it is transposed, or if its rows begin at one position of a cache's set.

    Args:
        buffers: both factors and the product.
        lengths: rows, columns, and what is summed over.
        strides: elements from row to row and from column to column, of both factors.
    """
    a, b, y = buffers
    rows, columns, depth = lengths
    a_row, a_column, b_row, b_column = strides
    launches, steps = [], (a_row, a_column)
    if a_column != 1 or 4 * a_row % PAGE == 0:
        steps = (depth + APART, 1)
        straight = step.temporary(F32, (rows, steps[0]))
        launches.append(copy(step, a, straight, (rows, depth), (a_row, a_column), steps))
        a = straight
    packed, packing = copied_into_panels(step, b, (depth, columns), (b_row, b_column))
    return [*launches, *packing, packed_launch(step, a, packed, y, None, lengths, steps)]


def packed_launch(
    step: Step,
    a: Buffer,
    b: Buffer,
    c: Buffer,
    bias: np.ndarray | None,
    lengths: tuple[int, int, int],
    a_steps: tuple[int, int],
) -> Launch:
    """A product of `lengths` rows, columns and depth, whose right matrix is in panels."""
    rows, columns, depth = lengths
    units = -(-columns // PRODUCT_PANEL) * -(-rows // ROW_BLOCK)
    parts = step.parts(units, rows * columns * depth / 16, FINER)
    scratch, zero = step.scratch(parts * 4 * PANEL * ROWS), zeros(step)
    further = {"negative_zero": step.constant_buffer(np.full(1, -0.0, np.float32))} if DENSE else {}

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        added = epilogue.added
        if (
            bias is None
            and epilogue.bias is None
            and added is not None
            and added.count == columns
            and not columns % PANEL
        ):
            return product(replace(epilogue, added=None), result, added)
        padded = np.zeros(-(-columns // PANEL) * PANEL, np.float32)
        for given in (bias, epilogue.bias):
            if given is not None:
                padded[:columns] += given
        return product(epilogue, result, step.constant_buffer(padded))

    def product(epilogue: Epilogue, result: Buffer, start: Buffer) -> Launch:
        return Launch(
            dense_product if DENSE else packed_product,
            parts,
            a=a,
            b=b,
            c=result,
            bias=start,
            rows=rows,
            columns=columns,
            depth=depth,
            a_row=4 * a_steps[0],
            a_step=4 * a_steps[1],
            zero=zero,
            scratch=scratch,
            epilogue=epilogue.arguments(columns),
            **further,
        )

    return launch_with_epilogue(launch, c, columns)


def shared_launch(
    step: Step,
    buffers: tuple[Buffer, Buffer, Buffer],
    lengths: tuple[int, int, int],
    strides: tuple[int, int, int, int],
) -> list[Launch] | None:
    """A product of `lengths` rows, columns and depth, None where few nodes read the right matrix.

    Args:
        buffers: both factors and the product.
        strides: elements from row to row and from column to column, of both factors.
    """
    a, b, y = buffers
    _, columns, depth = lengths
    if step.readers(b) < FEWEST_READERS or min(columns, depth) < PANEL:
        return None
    key = (shared_launch, id(b.allocation), b.offset, columns, depth, strides[2:])
    packed, packing = step.copies.get(key), list[Launch]()
    if packed is None:
        packed, packing = copied_into_panels(step, b, (depth, columns), strides[2:])
        step.copies[key] = packed
    return [*packing, packed_launch(step, a, packed, y, None, lengths, strides[:2])]
