"""Native products of matrices of bytes with constant right factors: MatMulInteger, QLinearMatMul, and onnxruntime's that give real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i32, number, share, u8
from ...runtime.record import dataclass
from ..contrib.dynamic_products import dynamic_quantize_matmul, matmul_integer_to_float, qgemm
from .byte_dot_kernel import PATH
from .byte_kernel import MIDDLE, PANEL, byte_panels, column_by
from .linear_kernel import dynamically
from .matmul import matmul_integer, qlinear_matmul
from .result_kernel import BYTES, INTEGERS, REALS, SIGNED_BYTES, byte_at, results

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)
TALL = 96
"""Rows that a part computes at a time."""


@range_kernel
def signed_rows(args: Any, part: Any, parts: Any) -> None:
    """Bytes, whether signed, rows, elements of a row; zero point; rows as signed bytes, padded to fours; their zero points and sums."""
    source, signed, rows, depth, zero = args[0], args[1], args[2], args[3], args[4]
    wide = (depth + 3) // 4 * 4
    turn = np.uint8(0 if signed != 0 else MIDDLE)
    own = byte_at(zero, signed) - (0 if signed != 0 else MIDDLE)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line, made = u8(source + row * depth), u8(args[5] + row * wide)
        total = np.int32(0)
        for k in range(depth):
            moved = line[k] ^ turn
            made[k] = moved
            total += np.int32(np.int8(moved))
        for k in range(depth, wide):
            made[k] = 0
        i32(args[6])[row], i32(args[7])[row] = own, total


def product_by(path: str) -> Any:
    """The kernel of a row of `INTEGERS`."""
    column = column_by(path)

    @range_kernel
    def product_of_bytes(args: Any, part: Any, parts: Any) -> None:
        """Rows, zero points and sums as `signed_rows` makes them; panels; `Right` of these; factors; form, zero point and place of results."""
        a, zeros, sums, b, rows, columns, depth = args[0], args[1], args[2], args[3], args[4], args[5], args[6]
        column_zeros, column_terms, b_scale, integers, reals = args[7], args[8], args[9], args[10], args[11]
        a_scale, y_scale, alpha, form, y_zero, y = args[12], args[13], np.float32(number(args[14])), args[15], args[16], args[17]
        scratch = args[18] + part * 4 * PANEL * (TALL + 1)
        factors = scratch + 4 * PANEL * TALL
        wide = (depth + 3) // 4 * 4
        itemsize = 4 if form in (INTEGERS, REALS) else 1
        zero = np.float32(byte_at(y_zero, 1 if form == SIGNED_BYTES else 0))
        count, tall = (columns + PANEL - 1) // PANEL, (rows + TALL - 1) // TALL
        first, last = share(count * tall, part, parts)
        for unit in range(first, last):
            panel, start = unit // tall, unit % tall * TALL
            width, many = min(PANEL, columns - panel * PANEL), min(TALL, rows - start)
            column(a + start * wide, wide, b + panel * wide * PANEL, wide // 4, scratch, many)
            at = 4 * panel * PANEL
            if form != INTEGERS:
                for j in range(PANEL):
                    factor = alpha * f32(a_scale)[0] * f32(b_scale + at)[j]
                    f32(factors)[j] = factor / f32(y_scale)[0] if y_scale != 0 else factor
            results(
                scratch, many, width, form, zeros + 4 * start, sums + 4 * start, column_zeros + at, column_terms + at, factors, 0,
                integers + at if integers != 0 else integers, reals + at if reals != 0 else reals, zero,
                y + (start * columns + panel * PANEL) * itemsize, columns * itemsize,
            )

    return product_of_bytes


product_of_bytes = product_by(PATH)


@dataclass(frozen=True)
class Factors:
    """A product: left factor, right one by its position among the inputs, and what becomes of the sums.

    Attributes:
        a_scale, a_zero: scalars, None for 1 and 0.
        b, b_scale, b_zero: positions; scales and zero points are for all or for each column, -1 where there are none.
        turned: whether the right factor is [columns, depth].
        integers, reals: added to each column, constants.
        y_scale, y_zero: scalars that results are divided by and moved by.
    """

    a: Buffer
    a_zero: Buffer | None
    b: int
    b_zero: int
    form: int
    a_scale: Buffer | None = None
    b_scale: int = -1
    turned: bool = False
    integers: np.ndarray | None = None
    reals: np.ndarray | None = None
    y_scale: Buffer | None = None
    y_zero: Buffer | None = None
    alpha: float = 1.0


def _columns(step: Step, index: int, columns: int, otherwise: float) -> np.ndarray | None:
    """A scale or zero point as one number for each column of the panels; None where it is not constant or has another shape."""
    if index < 0 or index >= len(step.inputs) or step.inputs[index] is None:
        found: np.ndarray | None = np.asarray(otherwise)
    else:
        found = step.constant(index)
    if found is None or found.size not in (1, columns) or (found.ndim > 1 and found.shape[-1] != found.size):
        return None
    return for_columns(found, columns, otherwise)


def for_columns(values: np.ndarray, columns: int, otherwise: float) -> np.ndarray:
    """One number, or one for each column, as one for each column of the panels."""
    whole = np.full(-(-columns // PANEL) * PANEL, otherwise, np.float64)
    whole[:columns] = values.reshape(-1)
    return whole


def zero_terms(sums: np.ndarray, depth: int, dtype: np.dtype[Any], zeros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each column of the panels of a matrix whose columns have these sums: its zero point as panels have it, and what `results` takes as its
    term."""
    terms = np.zeros(len(zeros), np.int64)
    terms[: len(sums)] = sums - depth * zeros[: len(sums)].astype(np.int64)
    return (zeros + (0 if dtype == U8 else MIDDLE)).astype(np.int32), terms.astype(np.int32)


def _scalar(buffer: Buffer | None) -> bool:
    return buffer is None or buffer.count == 1


def product(step: Step, y: Buffer, factors: Factors, kernel: Any = product_of_bytes) -> list[Launch] | None:
    """Launches of a product; None where the right factor is not constant, or scales are for something else than columns."""
    a, matrix = factors.a, step.inputs[factors.b]
    if matrix is None or not step.known(factors.b) or len(matrix.shape) != 2 or not a.shape:
        return None
    if a.dtype not in (U8, I8) or matrix.dtype not in (U8, I8):
        return None
    depth, columns = reversed(matrix.shape) if factors.turned else matrix.shape
    scales, zeros = _columns(step, factors.b_scale, columns, 1.0), _columns(step, factors.b_zero, columns, 0.0)
    singles = (factors.a_scale, factors.a_zero, factors.y_scale, factors.y_zero)
    if scales is None or zeros is None or a.shape[-1] != depth or not all(map(_scalar, singles)) or y.count != a.count // depth * columns:
        return None
    panels = step.packed(factors.b, ("bytes", factors.turned), lambda array: byte_panels(array.T if factors.turned else array))
    sums = step.derived(factors.b, ("sums", factors.turned), lambda array: array.sum(int(factors.turned), dtype=np.int64))
    return multiplied(step, y, factors, sums, matrix.dtype, panels, scales, zeros, kernel)


def multiplied(
    step: Step, y: Buffer, factors: Factors, sums: np.ndarray, dtype: np.dtype[Any], panels: Buffer, scales: np.ndarray, zeros: np.ndarray,
    kernel: Any = product_of_bytes,
) -> list[Launch]:
    """Launches of a product with a matrix that is in panels, the sums of its columns, and a scale and a zero point for each column of the panels."""
    a, depth, columns = factors.a, factors.a.shape[-1], len(sums)
    moved, terms = zero_terms(sums, depth, dtype, zeros)
    rows, wide = a.count // depth, -(-depth // 4) * 4
    lines, own = step.scratch(rows * wide), step.scratch(8 * rows)
    units = -(-columns // PANEL) * -(-rows // TALL)
    parts = step.parts(units, rows * columns * depth / 64)
    padded = [None if item is None else np.pad(item.reshape(-1), (0, len(zeros) - columns)) for item in (factors.integers, factors.reals)]
    held = [0 if item is None else step.held(item) for item in padded]
    arguments = (
        lines, own, own.view((4 * rows,), 4 * rows), panels, rows, columns, depth, step.held(moved),
        step.held(terms), step.held(scales.astype(np.float32)), *held,
        _or(factors.a_scale, step.held(np.ones(1, np.float32))), _or(factors.y_scale, 0), float(factors.alpha), factors.form,
        _or(factors.y_zero, 0), y, step.scratch(parts * 4 * PANEL * (TALL + 1)),
    )
    signed = int(a.dtype == I8)
    before = Launch(signed_rows, (a, signed, rows, depth, _or(factors.a_zero, 0), lines, own, own.view((4 * rows,), 4 * rows)),
                    step.parts(rows, a.count / 8))  # fmt: skip
    return [before, Launch(kernel, arguments, parts)]


def _or(buffer: Buffer | None, other: Any) -> Any:
    return other if buffer is None else buffer


def _form(dtype: np.dtype[Any]) -> int:
    return {"int32": INTEGERS, "float32": REALS, "uint8": BYTES, "int8": SIGNED_BYTES}[dtype.name]


def _given(step: Step, count: int) -> list[Buffer | None]:
    return [*step.inputs, *[None] * (count - len(step.inputs))]


@native(matmul_integer)
def plan_matmul_integer(step: Step) -> Planned:
    """Constant right factors."""
    a, _, a_zero, _ = _given(step, 4)
    return None if a is None else product(step, step.output(), Factors(a, a_zero, 1, 3, INTEGERS))


@native(qlinear_matmul)
def plan_qlinear_matmul(step: Step) -> Planned:
    """Constant right factors; f32 scales."""
    a, a_scale, a_zero, _, _, _, y_scale, y_zero = step.inputs
    y = step.output()
    if a is None or a_scale is None or y_scale is None or a_scale.dtype != F32 or y.dtype not in (U8, I8):
        return None
    return product(step, y, Factors(a, a_zero, 3, 5, _form(y.dtype), a_scale, 4, y_scale=y_scale, y_zero=y_zero))


@native(matmul_integer_to_float)
def plan_matmul_integer_to_float(step: Step) -> Planned:
    """Constant right factors and biases; f32."""
    a, _, a_scale, _, a_zero, _, bias = _given(step, 7)
    reals = step.constant(6)
    if a is None or a_scale is None or a_scale.dtype != F32 or (bias is not None and (reals is None or reals.dtype != F32)):
        return None
    return product(step, step.output(), Factors(a, a_zero, 1, 5, REALS, a_scale, 3, reals=reals))


@native(dynamic_quantize_matmul)
def plan_dynamic_quantize_matmul(step: Step) -> Planned:
    """Constant right factors and biases."""
    a, _, _, _, bias = _given(step, 5)
    reals = step.constant(4)
    if a is None or a.dtype != F32 or (bias is not None and reals is None):
        return None
    before, codes, scale, zero = dynamically(step, a)
    launches = product(step, step.output(), Factors(codes, zero, 1, 3, REALS, scale, 2, reals=reals))
    return None if launches is None else [*before, *launches]


@native(qgemm)
def plan_qgemm(step: Step) -> Planned:
    """Constant right factors, and biases of the columns."""
    a, a_scale, a_zero, b, _, _, c, y_scale, y_zero = _given(step, 9)
    integers = step.constant(6)
    y = step.output()
    if a is None or a_scale is None or b is None or step.attributes["transA"] or len(a.shape) != 2 or (y_scale is None) != (y_zero is None):
        return None
    turned = bool(step.attributes["transB"])
    columns = b.shape[0 if turned else 1]
    if c is not None and (integers is None or integers.size not in (1, columns) or integers.dtype != np.int32):
        return None
    wide = None if integers is None else np.broadcast_to(integers.reshape(-1), (columns,))
    return product(
        step, y, Factors(a, a_zero, 3, 5, _form(y.dtype), a_scale, 4, turned, wide, None, y_scale, y_zero, step.attributes["alpha"])
    )
