"""Native MatMul and Gemm for other dtypes than f32, arbitrary broadcasting, vectors and transposed operands."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.process_cache import process_cache
from ...runtime.jit.address import i64, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.elementwise_fusion import NARROW
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Launch, Planned, Step, native
from ...runtime.simd.element import ELEMENTS, element
from ...runtime.simd.vector import stack_array
from ..cast.cast_kernel import conversion
from ..elementwise.elementwise_kernel import computed, floating
from . import matmul_kernel
from .gemm import gemm
from .matmul import matmul

ROWS, COLUMNS = 4, 32
"""Rows and columns of the output that are computed at a time."""


@process_cache
def _kernel(dtype: np.dtype[Any]) -> RangeKernel:
    kind = ELEMENTS[dtype.name]
    pointer, number = kind.pointer, kind.compute_type
    nbytes = dtype.itemsize

    @range_kernel(fastmath={"contract"})
    def product(
        a: Address,
        b: Address,
        c: Address,
        begins_a: Address,
        begins_b: Address,
        stack: int,
        rows: int,
        columns: int,
        depth: int,
        a_row: int,
        a_step: int,
        b_row: int,
        b_column: int,
        scratch: Address,
        part: int,
        parts: int,
    ) -> None:
        """Products of a stack of matrices, which begin where `begins_a` and `begins_b` say; steps are elements."""
        a, b, c, begins_a, begins_b = pointer(a), pointer(b), pointer(c), i64(begins_a), i64(begins_b)
        packed = pointer(scratch + part * depth * COLUMNS * nbytes)
        total = stack_array(number, 8)
        count = (columns + COLUMNS - 1) // COLUMNS
        first, last = share(stack * count, part, parts)
        for unit in range(first, last):
            matrix, column = unit // count, unit % count * COLUMNS
            width, start = min(COLUMNS, columns - column), begins_b[matrix] + column * b_column
            for k in range(depth):
                for j in range(COLUMNS):
                    packed[k * COLUMNS + j] = b[start + k * b_row + j * b_column] if j < width else number(0)
            for row in range(0, rows, ROWS):
                height = min(ROWS, rows - row)
                line = begins_a[matrix] + row * a_row
                one = line + (a_row if height > 1 else 0)
                two = line + (2 * a_row if height > 2 else 0)
                three = line + (3 * a_row if height > 3 else 0)
                for j in range(ROWS * COLUMNS):
                    total[j] = number(0)
                for k in range(depth):
                    at = k * a_step
                    w, x, y, z = a[line + at], a[one + at], a[two + at], a[three + at]
                    for j in range(COLUMNS):
                        value = packed[k * COLUMNS + j]
                        total[j] = number(total[j] + w * value)
                        total[COLUMNS + j] = number(total[COLUMNS + j] + x * value)
                        total[2 * COLUMNS + j] = number(total[2 * COLUMNS + j] + y * value)
                        total[3 * COLUMNS + j] = number(total[3 * COLUMNS + j] + z * value)
                target = (matrix * rows + row) * columns + column
                for r in range(height):
                    for j in range(width):
                        c[target + r * columns + j] = total[r * COLUMNS + j]

    return product


def _begins(shape: Sequence[int], whole: Sequence[int], nbytes: int) -> np.ndarray:
    """Offsets in elements of the matrices of a stack that is repeated to `whole`."""
    own = np.arange(math.prod(shape), dtype=np.int64).reshape(shape) * nbytes
    return np.broadcast_to(own, tuple(whole)).reshape(-1).astype(np.int64)


def _numbers(step: Step, buffer: Buffer, made: list[Any]) -> Buffer:
    """An operand in the dtype that it is computed in."""
    if buffer.dtype.name not in NARROW:
        return buffer
    wide = computed(buffer.dtype)
    index = step.inputs.index(buffer)
    if step.is_constant(index):
        return step.packed(index, "numbers", lambda array: array.astype(wide))
    number = step.scratch(buffer.count * wide.itemsize).view(buffer.shape, dtype=wide)
    made.append(conversion(buffer, number))
    return number


def launch(
    step: Step,
    a: Buffer,
    b: Buffer,
    c: Buffer,
    begins: tuple[np.ndarray, np.ndarray],
    lengths: tuple[int, int, int],
    strides: tuple[int, int, int, int],
) -> Launch:
    """Products of matrices of `lengths` rows, columns and depth."""
    rows, columns, depth = lengths
    stack = len(begins[0])
    parts = step.parts(stack * -(-columns // COLUMNS), stack * math.prod(lengths) / 8)
    scratch = step.scratch(parts * depth * COLUMNS * a.dtype.itemsize)
    a_row, a_step, b_row, b_column = strides
    return Launch(
        _kernel(a.dtype),
        parts,
        a=a,
        b=b,
        c=c,
        begins_a=step.constant_buffer(begins[0]),
        begins_b=step.constant_buffer(begins[1]),
        stack=stack,
        rows=rows,
        columns=columns,
        depth=depth,
        a_row=a_row,
        a_step=a_step,
        b_row=b_row,
        b_column=b_column,
        scratch=scratch,
    )


def _fits(a: Buffer | None, b: Buffer | None) -> bool:
    if a is None or b is None or a.dtype != b.dtype or a.dtype == np.bool_:
        return False
    return element(a.dtype) is not None and a.dtype.itemsize * 8 >= 16


@native(matmul)
def plan_matmul(step: Step) -> Planned:
    """Plan the dtypes and layouts that the f32 kernel does not take."""
    planned = matmul_kernel.plan_matmul(step)
    a, b = step.inputs
    if planned is not None or a is None or b is None or not _fits(a, b):
        return planned
    y = step.output()
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    rows, depth, columns = left[-2], left[-1], right[-1]
    whole = np.broadcast_shapes(left[:-2], right[:-2])
    begins = (_begins(left[:-2], whole, rows * depth), _begins(right[:-2], whole, depth * columns))
    if math.prod(right[:-2]) == 1 and math.prod(left[:-2]) == len(begins[0]):
        rows, begins = rows * len(begins[0]), (begins[0][:1], begins[1][:1])
    made: list[Any] = []
    one, other = _numbers(step, a, made), _numbers(step, b, made)
    target = y if one.dtype == y.dtype else step.scratch(y.count * one.dtype.itemsize).view(y.shape, dtype=one.dtype)
    made.append(launch(step, one, other, target, begins, (rows, columns, depth), (depth, 1, columns, 1)))
    if target is not y:
        made.append(conversion(target, y))
    return made


@native(gemm)
def plan_gemm(step: Step) -> Planned:
    """Plan everything but f32 with a constant matrix on the right."""
    planned = matmul_kernel.plan_gemm(step)
    a, b, *rest = step.inputs
    c = rest[0] if rest else None
    if planned is not None or a is None or b is None or not _fits(a, b) or (c is not None and c.dtype != a.dtype):
        return planned
    y, attributes = step.output(), step.attributes
    alpha, beta = float(attributes["alpha"]), float(attributes["beta"])
    if not floating(y.dtype) and (alpha, beta) != (1.0, 1.0):
        return None
    rows, columns = y.shape
    depth = a.count // rows
    strides = ((1, rows) if attributes["transA"] else (depth, 1)) + (
        (1, depth) if attributes["transB"] else (columns, 1)
    )
    made: list[Any] = []
    one, other = _numbers(step, a, made), _numbers(step, b, made)
    plain = alpha == 1 and c is None and one.dtype == y.dtype
    target = y if plain else step.scratch(y.count * one.dtype.itemsize).view(y.shape, dtype=one.dtype)
    zero = np.zeros(1, np.int64)
    made.append(launch(step, one, other, target, (zero, zero), (rows, columns, depth), strides))
    if plain:
        return made
    wide = one.dtype
    steps = [
        Apply(
            ".Mul", (target, step.constant_buffer(np.full((), alpha, wide))), (), wide, y.dtype if c is None else wide
        )
    ]
    if c is not None:
        scaled = c
        if beta != 1:
            scaled = step.scratch(c.nbytes).view(c.shape, dtype=c.dtype)
            made.append(
                Chain(
                    (Apply(".Mul", (c, step.constant_buffer(np.full((), beta, c.dtype))), (), wide, c.dtype),), scaled
                )
            )
        steps.append(Apply(".Add", (None, scaled), (), wide, y.dtype))
    return [*made, Chain(tuple(steps), y)]
