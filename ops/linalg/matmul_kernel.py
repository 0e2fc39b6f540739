"""Native MatMul, Gemm and LinearTransposed of f32 rows. Constant right matrices are packed into panels once, others on
each run; those that LinearTransposed has may be stored in any type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Launch, Planned, Step, native
from ..kernels.gemm.columns import transposed
from ..kernels.gemm.gemv import gemv
from ..kernels.gemm.microkernel_f32 import ROWS, column_of_tiles
from ..kernels.gemm.register_tile import PANEL
from .gemm import gemm
from .linear_kernel import gemv_launch, stored_weight
from .linear_transposed import linear_transposed
from .matmul import matmul
from .panel_product import COPIED, packed_launch, product_panels, shared_launch, variable_product, zeros

F32 = np.dtype(np.float32)
FEWEST, RUN = 2, 32
"""Rows up to which a transposed constant is read as it is, where its rows are runs of so many elements."""


@range_kernel
def stacked_product(
    a: Address,
    b: Address,
    c: Address,
    stack: int,
    rows: int,
    columns: int,
    depth: int,
    a_matrix: int,
    b_matrix: int,
    zero: Address,
    scratch: Address,
    a_row: int,
    a_column: int,
    b_row: int,
    b_column: int,
    part: int,
    parts: int,
) -> None:
    """Products of two stacks of matrices; `a_matrix` and `b_matrix` are elements from matrix to matrix, `a_row` to
    `b_column` those between rows and columns; b is packed into the scratch memory."""
    room = (depth + ROWS) * 4 * PANEL
    panel_of = scratch + part * room
    packed = f32(panel_of)
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
            a + matrix * a_matrix * 4,
            a_row * 4,
            a_column * 4,
            panel_of,
            depth,
            c + (matrix * rows * columns + panel * PANEL) * 4,
            columns * 4,
            0,
            rows,
            width,
            zero,
            0,
            zero,
            np.float32(-np.inf),
            np.float32(np.inf),
            panel_of + depth * 4 * PANEL,
        )


@native(matmul)
def plan_matmul(step: Step) -> Planned:
    """Plan f32 stacks that broadcast as a whole; NumPy computes other broadcasts."""
    a, b = step.inputs
    if a is None or b is None or a.dtype != F32 or b.dtype != F32 or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    y = step.output()
    depth, columns = b.shape[-2:]
    if len(b.shape) == 2 and step.is_constant(1):
        rows = a.count // depth
        packed = step.packed(1, "panels", product_panels)
        return packed_launch(step, a, packed, y, None, (rows, columns, depth), (depth, 1))
    stack = math.prod(y.shape[:-2])
    left, right = math.prod(a.shape[:-2]), math.prod(b.shape[:-2])
    if not (left in (1, stack) and right in (1, stack)):
        return None
    rows = a.shape[-2]
    if right == 1:
        rows, stack, left = a.count // depth, 1, 1
    matrices = (0 if left == 1 else rows * depth, 0 if right == 1 else depth * columns)
    return stacked_launch(step, (a, b, y), (stack, rows, columns, depth), matrices, (depth, 1, columns, 1))


@native(linear_transposed)
def plan_linear_transposed(step: Step) -> Planned:
    """Decode weights piece by piece; f32 constants are read in their stored layout and not copied.

    Parts are as wide as pieces, since each copies all rows.
    """
    x, weight, weight_type = step.inputs[0], step.inputs[1], stored_weight(step)
    if x is None or x.dtype != F32 or weight is None or weight_type is None:
        return None
    (name, row_bytes), y = weight_type, step.output()
    count, length = x.shape[-1], y.shape[-1]
    tokens = x.count // count
    if name == "f32" and not step.is_constant(1):
        return stacked_launch(step, (x, weight, y), (1, tokens, length, count), (0, 0), (count, 1, length, 1))
    shares = max(step.threads, -(-length // transposed.WIDTH))
    parts = step.parts(min(shares, -(-length // transposed.unit_of(name))), tokens * count * length / 16)
    nbytes = transposed.scratch_nbytes(name, tokens)
    launch = Launch(
        transposed.transposed_gemm(name),
        parts,
        weight=weight,
        x=x,
        y=y,
        count=count,
        row_bytes=row_bytes,
        length=length,
        tokens=tokens,
        scratch=step.scratch(parts * nbytes),
        nbytes=nbytes,
    )
    return [launch]


def stacked_launch(
    step: Step,
    buffers: tuple[Buffer, Buffer, Buffer],
    lengths: tuple[int, int, int, int],
    matrices: tuple[int, int],
    strides: tuple[int, int, int, int],
) -> list[Launch]:
    """Products of stacks, the right matrices packed while they are used.

    Args:
        buffers: both factors and the product.
        lengths: of the stack, rows, columns, and what is summed over.
        matrices: elements from one matrix to the next, of both factors.
        strides: elements from row to row and from column to column, of both factors.
    """
    a, b, y = buffers
    stack, rows, columns, depth = lengths
    if stack == 1 and min(rows, columns, depth) >= COPIED:
        return variable_product(step, buffers, lengths[1:], strides)
    shared = shared_launch(step, buffers, lengths[1:], strides) if stack == 1 else None
    if shared is not None:
        return shared
    parts = step.parts(stack * -(-columns // PANEL), math.prod(lengths) / 16)
    scratch = step.scratch(parts * (depth + ROWS) * 4 * PANEL)
    launch = Launch(
        stacked_product,
        parts,
        a=a,
        b=b,
        c=y,
        stack=stack,
        rows=rows,
        columns=columns,
        depth=depth,
        a_matrix=matrices[0],
        b_matrix=matrices[1],
        zero=zeros(step),
        scratch=scratch,
        a_row=strides[0],
        a_column=strides[1],
        b_row=strides[2],
        b_column=strides[3],
    )
    return [launch]


@native(gemm)
def plan_gemm(step: Step) -> Planned:
    """Plan constant right matrices with a per-column bias or none, and any other matrices."""
    a, b = step.inputs[:2]
    c = step.inputs[2] if len(step.inputs) > 2 else None
    if a is None or b is None or a.dtype != F32 or step.attributes["alpha"] != 1:
        return None
    rows, columns = step.output().shape
    if not step.is_constant(1):
        return _of_variables(step, a, b, c)
    bias = None
    if c is not None:
        bias = step.constant(2)
        if (
            bias is None
            or step.attributes["beta"] != 1
            or bias.size not in (1, columns)
            or (bias.ndim == 2 and bias.shape[0] != 1)
        ):
            return None
    flipped = step.attributes["transB"]
    if flipped and not step.attributes["transA"] and rows <= FEWEST and b.shape[1] % RUN == 0:
        return _transposed_rows(step, a, b, bias)
    packed = step.packed(1, ("panels", flipped), lambda matrix: product_panels(matrix.T if flipped else matrix))
    depth = a.count // rows
    steps = (1, rows) if step.attributes["transA"] else (depth, 1)
    return packed_launch(step, a, packed, step.output(), bias, (rows, columns, depth), steps)


def _of_variables(step: Step, a: Buffer, b: Buffer, c: Buffer | None) -> list[Any]:
    """Either matrix may be transposed; what is added broadcasts to the product."""
    y, beta = step.output(), step.attributes["beta"]
    rows, columns = y.shape
    depth = a.count // max(rows, 1)
    of_a = (1, rows) if step.attributes["transA"] else (depth, 1)
    of_b = (1, depth) if step.attributes["transB"] else (columns, 1)
    target = y if c is None else step.temporary(F32, y.shape)
    made: list[Any] = stacked_launch(step, (a, b, target), (1, rows, columns, depth), (0, 0), (*of_a, *of_b))
    if c is not None:
        scaled = c if beta == 1 else step.temporary(F32, c.shape)
        if beta != 1:
            number = step.constant_buffer(np.full((), beta, F32))
            made.append(Chain((Apply(".Mul", (c, number), (), F32, F32),), scaled))
        made.append(Chain((Apply(".Add", (target, scaled), (), F32, F32),), y))
    return made


def _transposed_rows(step: Step, a: Buffer, b: Buffer, bias: np.ndarray | None) -> Launch:
    """Few rows times the rows of a constant, which are read once as they are, so that nothing is packed and held
    twice."""
    y = step.output()
    rows, columns = y.shape
    depth = a.count // rows
    shift = 0 if bias is None else step.constant_buffer(np.broadcast_to(bias.reshape(-1), (columns,)))
    return gemv_launch(step, gemv("f32", rows), rows, (b, a, y, shift), (columns, 4 * depth, depth, 4 * depth))
