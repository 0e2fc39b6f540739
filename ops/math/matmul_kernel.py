"""Native MatMul and Gemm of float32. Constant right matrices are packed into panels once; others while they are used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, number, share
from .finish_kernel import Finish, finished, finishing
from .gemm import gemm
from .matmul import matmul
from .rows_kernel import few
from .tile_kernel import AHEAD, PANEL, ROWS, column_of_tiles, panels

F32 = np.dtype(np.float32)
TALL = 96
"""Rows that a part computes at a time when the right matrix is packed already."""
FEWEST, RUN = 2, 32
"""Rows up to which a transposed constant is read as it is, where its rows are runs of so many elements."""


@range_kernel
def packed_product(args: Any, part: Any, parts: Any) -> None:
    """c[m, n] = a[m, k] b[k, n] + bias, b in panels: a, b, c, column bias, m, n, k, a's steps, scratch, limits, and `Finish.arguments`."""
    a, b, c, bias, rows, columns, depth = args[0], args[1], args[2], args[3], args[4], args[5], args[6]
    a_row, a_step, zero = args[7], args[8], args[9]
    spare = args[10] + part * 4 * PANEL * ROWS
    count = (columns + PANEL - 1) // PANEL
    tall = (rows + TALL - 1) // TALL
    low, high = np.float32(number(args[11])), np.float32(number(args[12]))
    first, last = share(count * tall, part, parts)
    for unit in range(first, last):
        panel, block = unit // tall, unit % tall
        width = min(PANEL, columns - panel * PANEL)
        column_of_tiles(
            a, a_row, a_step, b + panel * depth * 4 * PANEL, depth, c + panel * 4 * PANEL, columns * 4, block * TALL, min(rows, block * TALL + TALL),
            width, zero, 0, bias + panel * 4 * PANEL, low, high, spare, AHEAD,
        )
        if args[13] != 0:
            place, added = 4 * (block * TALL * columns + panel * PANEL), args[17]
            alpha, beta = np.float32(number(args[15])), np.float32(number(args[16]))
            if added != 0:
                added += block * TALL * args[18] + 4 * panel * PANEL
            finished(args[14], alpha, beta, c + place, 4 * columns, min(rows - block * TALL, TALL), width, added, args[18])


@range_kernel
def stacked_product(args: Any, part: Any, parts: Any) -> None:
    """Products of two stacks of matrices: a, b, c, stack, m, n, k, elements from matrix to matrix of a and of b, zeros, scratch; b is packed."""
    a, b, c, stack, rows, columns, depth = args[0], args[1], args[2], args[3], args[4], args[5], args[6]
    a_matrix, b_matrix, zero = args[7], args[8], args[9]
    b_row, b_column = args[11], args[12]
    room = (depth + ROWS) * 4 * PANEL
    scratch = args[10] + part * room
    packed = f32(scratch)
    count = (columns + PANEL - 1) // PANEL
    first, last = share(stack * count, part, parts)
    for unit in range(first, last):
        matrix, panel = unit // count, unit % count
        width = min(PANEL, columns - panel * PANEL)
        source = f32(b + (matrix * b_matrix + panel * PANEL * b_column) * 4)
        for k in range(depth):
            for column in range(width):
                packed[k * PANEL + column] = source[k * b_row + column * b_column]
            for column in range(width, PANEL):
                packed[k * PANEL + column] = np.float32(0)
        column_of_tiles(
            a + matrix * a_matrix * 4, depth * 4, 4, scratch, depth, c + (matrix * rows * columns + panel * PANEL) * 4, columns * 4, 0, rows, width,
            zero, 0, zero, np.float32(-np.inf), np.float32(np.inf), scratch + depth * 4 * PANEL,
        )


def zeros(step: Step) -> Buffer:
    """A panel's width of zeros."""
    return step.held(np.zeros(PANEL, np.float32))


def packed_launch(
    step: Step, a: Buffer, b: Buffer, c: Buffer, bias: np.ndarray | None, rows: int, columns: int, depth: int, a_steps: tuple[int, int],
) -> Launch:
    """A product whose right matrix is in panels."""
    units = -(-columns // PANEL) * -(-rows // TALL)
    parts = step.parts(units, rows * columns * depth / 16)
    scratch, zero = step.scratch(parts * 4 * PANEL * ROWS), zeros(step)

    def launch(finish: Finish, result: Buffer) -> Launch:
        padded = np.zeros(-(-columns // PANEL) * PANEL, np.float32)
        for given in (bias, finish.bias):
            if given is not None:
                padded[:columns] += given
        steps = (4 * a_steps[0], 4 * a_steps[1])
        arguments = (a, b, result, step.held(padded), rows, columns, depth, *steps, zero, scratch, *finish.limits, *finish.arguments(columns))
        return Launch(packed_product, arguments, parts)

    return finishing(launch, c, columns)


@native(matmul)
def plan_matmul(step: Step) -> Planned:
    """Stacks that repeat in other ways than as a whole are left to NumPy."""
    a, b = step.inputs
    if a is None or b is None or a.dtype != F32 or b.dtype != F32 or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    y = step.output()
    depth, columns = b.shape[-2:]
    if len(b.shape) == 2 and step.known(1):
        rows = a.count // depth
        packed = step.packed(1, "panels", panels)
        return packed_launch(step, a, packed, y, None, rows, columns, depth, (depth, 1))
    stack = math.prod(y.shape[:-2])
    left, right = math.prod(a.shape[:-2]), math.prod(b.shape[:-2])
    if not (left in (1, stack) and right in (1, stack)):
        return None
    rows = a.shape[-2]
    if right == 1:
        rows, stack, left = a.count // depth, 1, 1
    return stacked_launch(step, a, b, y, (stack, rows, columns, depth), (0 if left == 1 else rows * depth, 0 if right == 1 else depth * columns))


def stacked_launch(
    step: Step, a: Buffer, b: Buffer, y: Buffer, lengths: tuple[int, int, int, int], steps: tuple[int, int],
) -> Launch:
    """Products of stacks, the right matrices packed while they are used."""
    stack, _rows, columns, depth = lengths
    parts = step.parts(stack * -(-columns // PANEL), math.prod(lengths) / 16)
    scratch = step.scratch(parts * (depth + ROWS) * 4 * PANEL)
    return Launch(stacked_product, (a, b, y, *lengths, *steps, zeros(step), scratch, columns, 1), parts)


@native(gemm)
def plan_gemm(step: Step) -> Planned:
    """Constant matrices on the right, and a bias for the columns or none."""
    a, b = step.inputs[:2]
    c = step.inputs[2] if len(step.inputs) > 2 else None
    if a is None or b is None or a.dtype != F32 or not step.known(1) or step.attributes["alpha"] != 1:
        return None
    rows, columns = step.output().shape
    bias = None
    if c is not None:
        bias = step.constant(2)
        if bias is None or step.attributes["beta"] != 1 or bias.size not in (1, columns) or (bias.ndim == 2 and bias.shape[0] != 1):
            return None
    flipped = step.attributes["transB"]
    if flipped and not step.attributes["transA"] and rows <= FEWEST and b.shape[1] % RUN == 0:
        return _rows_as_they_are(step, a, b, bias)
    packed = step.packed(1, ("panels", flipped), lambda matrix: panels(matrix.T if flipped else matrix))
    depth = a.count // rows
    steps = (1, rows) if step.attributes["transA"] else (depth, 1)
    return packed_launch(step, a, packed, step.output(), bias, rows, columns, depth, steps)


def _rows_as_they_are(step: Step, a: Buffer, b: Buffer, bias: np.ndarray | None) -> Launch:
    """Few rows times the rows of a constant, which are read once as they are, so that nothing is packed and held twice."""
    y = step.output()
    rows, columns = y.shape
    depth = a.count // rows
    shift = 0 if bias is None else step.held(np.broadcast_to(bias.reshape(-1), (columns,)))
    arguments = (b, a, y, shift, columns, 4 * depth, depth, 4 * depth, 4 * columns)
    return Launch(few("f32", rows), arguments, step.parts(columns, 3 * y.count * depth / 16))
