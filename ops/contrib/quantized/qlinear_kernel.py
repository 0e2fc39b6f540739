"""Native QLinearAdd and QLinearMul, and 256-entry lookup tables for QLinearConcat, QLinearSigmoid and
QLinearLeakyRelu."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.jit.address import share, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.elementwise_fusion import collapsed
from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ....runtime.simd.bytes import TABLES, load_i8, load_u8, lookup_bytes, store_bytes
from ....runtime.simd.memory import fma
from ....runtime.simd.vector import LANES, splat, to_float
from ...kernels.gemm.requantize import load_zero_point, round_to_bytes
from .qlinear import (
    fixed_part,
    qlinear_add,
    qlinear_concat,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    real,
    stored,
)

F32, BYTES = np.dtype(np.float32), (np.dtype(np.uint8), np.dtype(np.int8))
PIECE = 4096
"""Elements that one unit of work computes."""


@inner
def _bytes(address: Any, step: Any, signed: Any, lanes: Any) -> Any:
    """Sixteen bytes as f32, or one byte sixteen times where `step` is 0."""
    if step == 0:
        return splat(np.float32(load_zero_point(address, signed)))
    return to_float(load_i8(address, lanes) if signed != 0 else load_u8(address, lanes))


@inner
def _sum(a: Any, b: Any, one: Any, other: Any, fixed: Any, left: Any, right: Any) -> Any:
    return fma(a, splat(one), fma(b, splat(other), splat(fixed)))


@inner
def _product(a: Any, b: Any, one: Any, unused: Any, fixed: Any, left: Any, right: Any) -> Any:
    return (a - left) * (b - right) * one + fixed


def _paired(formula: Any) -> Any:
    @range_kernel
    def paired_bytes(
        first_bytes: Address,
        second_bytes: Address,
        made: Address,
        rows: int,
        length: int,
        a_row: int,
        a_step: int,
        b_row: int,
        b_step: int,
        signed: int,
        first_factor: float,
        second_factor: float,
        addend: float,
        first_zero: float,
        second_zero: float,
        together: int,
        a_group: int,
        b_group: int,
        part: int,
        parts: int,
    ) -> None:
        """Rows of results from two rows of bytes, whose steps are from row to row, within one, and between groups of
        rows that are together."""
        low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
        one, other, fixed = np.float32(first_factor), np.float32(second_factor), np.float32(addend)
        left, right = np.float32(first_zero), np.float32(second_zero)
        pieces = (length + PIECE - 1) // PIECE
        first, last = share(rows * pieces, part, parts)
        for unit in range(first, last):
            row, begin = unit // pieces, unit % pieces * PIECE
            among, group = row % together, row // together
            a, b, y = (
                first_bytes + group * a_group + among * a_row,
                second_bytes + group * b_group + among * b_row,
                made + row * length,
            )
            end = min(length, begin + PIECE)
            for j in range(begin, end, LANES):
                lanes = (1 << min(LANES, end - j)) - 1
                one_bytes, other_bytes = (
                    _bytes(a + j * a_step, a_step, signed, lanes),
                    _bytes(b + j * b_step, b_step, signed, lanes),
                )
                store_bytes(
                    y + j,
                    round_to_bytes(
                        formula(one_bytes, other_bytes, one, other, fixed, left, right), np.float32(0), low, high
                    ),
                    lanes,
                )

    return paired_bytes


_SUMS, _PRODUCTS = _paired(_sum), _paired(_product)


@range_kernel
def looked_up(
    source: Address, table_at: Address, target: Address, rows: int, length: int, target_row: int, part: int, parts: int
) -> None:
    """Bytes by a table of what they become; rows of results are `target_row` bytes apart."""
    table = u8(table_at)
    pieces = (length + PIECE - 1) // PIECE
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * PIECE
        x, y = u8(source + row * length), u8(target + row * target_row)
        end, done = min(length, begin + PIECE), begin
        if TABLES:
            done = begin + (end - begin) // 64 * 64
            for j in range(begin, done, 64):
                lookup_bytes(table_at, source + row * length + j, target + row * target_row + j)
        for j in range(done, end):
            y[j] = table[x[j]]


def _numbers(step: Step, *indices: int) -> list[np.ndarray] | None:
    """Constants of one element, f32 steps first and zero points behind; zero if absent."""
    found = []
    for index in indices:
        held = step.constant(index)
        if held is None and index < len(step.inputs) and step.inputs[index] is not None:
            return None
        found.append(np.zeros((), np.int32) if held is None else held)
    return [item.reshape(()) for item in found] if all(item.size == 1 for item in found) else None


@native(qlinear_add, qlinear_mul)
def plan_pair(step: Step) -> Planned:
    """Constant steps and zero points; factors that repeat along the first or the last axes."""
    a, b, y = step.inputs[0], step.inputs[3], step.output()
    held = _numbers(step, 1, 4, 6, 2, 5, 7)
    if (
        a is None
        or b is None
        or held is None
        or a.dtype not in BYTES
        or a.dtype != b.dtype
        or any(item.dtype != F32 for item in held[:3])
    ):
        return None
    lengths, strides = collapsed(y.shape, [a.shape, b.shape])
    if len(lengths) > 3:
        return None
    (groups, together, length), ((a_group, a_row, a_step), (b_group, b_row, b_step)) = (
        _three(lengths, 1),
        [_three(each, 0) for each in strides],
    )
    if a_step > 1 or b_step > 1:
        return None
    (a_scale, b_scale, y_scale), (a_zero, b_zero, y_zero) = held[:3], held[3:]
    numbers: tuple[float, ...]
    with np.errstate(all="ignore"):
        if step.node.op is qlinear_add:
            numbers = (float(a_scale / y_scale), float(b_scale / y_scale), float(fixed_part(*held)), 0.0, 0.0)
        else:
            numbers = (float(a_scale * b_scale / y_scale), 0.0, float(y_zero), float(a_zero), float(b_zero))
    kernel = _SUMS if step.node.op is qlinear_add else _PRODUCTS
    units = groups * together * -(-length // PIECE)
    return Launch(
        kernel,
        step.parts(units, y.count),
        first_bytes=a,
        second_bytes=b,
        made=y,
        rows=groups * together,
        length=length,
        a_row=a_row,
        a_step=a_step,
        b_row=b_row,
        b_step=b_step,
        signed=int(a.dtype != np.uint8),
        first_factor=numbers[0],
        second_factor=numbers[1],
        addend=numbers[2],
        first_zero=numbers[3],
        second_zero=numbers[4],
        together=together,
        a_group=a_group,
        b_group=b_group,
    )


def _three(values: list[int], missing: int) -> tuple[int, int, int]:
    """Of three dims, the outer ones filled in where they are missing."""
    outer, middle, inner_most = [missing, missing, missing, *values][-3:]
    return outer, middle, inner_most


def _table(dtype: np.dtype[Any], function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What every byte becomes, by its bits."""
    return np.ascontiguousarray(function(np.arange(256, dtype=np.uint8).view(dtype))).view(np.uint8)


def _lookup(step: Step, x: Buffer, table: np.ndarray, y: Buffer, rows: int, length: int, row: int) -> Launch:
    parts = step.parts(rows * -(-length // PIECE), x.count)
    return Launch(
        looked_up,
        parts,
        source=x,
        table_at=step.constant_buffer(table),
        target=y,
        rows=rows,
        length=length,
        target_row=row,
    )


@native(qlinear_sigmoid, qlinear_leaky_relu)
def plan_function(step: Step) -> Planned:
    """Constant steps and zero points."""
    x, compute = step.inputs[0], step.node.op.compute
    held = [step.constant(index) for index in range(1, len(step.inputs))]
    computed = any(item is None and given is not None for item, given in zip(held, step.inputs[1:], strict=True))
    if x is None or x.dtype not in BYTES or compute is None or computed:
        return None
    own = {"alpha": step.attributes["alpha"]} if "alpha" in step.attributes else {}
    return _lookup(
        step, x, _table(x.dtype, lambda codes: compute(codes, *held, **own)), step.output(), 1, x.count, x.count
    )


@native(qlinear_concat)
def plan_concat(step: Step) -> Planned:
    """Constant steps and zero points."""
    y = step.output()
    axis = step.attributes["axis"] % len(y.shape)
    rows, row = math.prod(y.shape[:axis]), math.prod(y.shape[axis:])
    scale, zero = step.constant(0), step.constant(1)
    launches, start = [], 0
    for index in range(2, len(step.inputs), 3):
        x, held = step.inputs[index], [step.constant(index + 1), step.constant(index + 2)]
        if (
            x is None
            or x.dtype not in BYTES
            or x.dtype != y.dtype
            or scale is None
            or zero is None
            or held[0] is None
            or held[1] is None
        ):
            return None
        own = [item for item in held if item is not None]
        table = _table(
            x.dtype,
            lambda codes, own=own: stored(real(codes, *own), scale, zero, zero),  # type: ignore[misc]
        )
        length = math.prod(x.shape[axis:])
        launches.append(_lookup(step, x, table, y.view((rows * row - start,), start), rows, length, row))
        start += length
    return launches
