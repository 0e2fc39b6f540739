"""Native QLinearAdd and QLinearMul, and 256-entry lookup tables for QLinearConcat, QLinearSigmoid and
QLinearLeakyRelu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.jit.address import i8, share, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.elementwise_fusion import collapsed
from ....runtime.plan.kernel_api import Launch, Planned, Step, native
from ....runtime.simd.bytes import TABLES, load_i8, load_u8, store_bytes
from ....runtime.simd.memory import fma
from ....runtime.simd.vector import LANES, address_of, splat, stack_array, to_float
from ...kernels.byte_lookup import PIECE, launch_lookup, lookup_line, table_of
from ...kernels.gemm.requantize import load_zero_point, round_to_byte, round_to_bytes
from .qlinear import (
    fixed_part,
    qlinear_add,
    qlinear_concat,
    qlinear_global_average_pool,
    qlinear_leaky_relu,
    qlinear_mul,
    qlinear_sigmoid,
    real,
    stored,
)

CODES = 256
F32, BYTES = np.dtype(np.float32), (np.dtype(np.uint8), np.dtype(np.int8))


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
    @inner
    def pair_line(
        a: Any, a_step: Any, b: Any, b_step: Any, y: Any, count: Any, signed: Any, factors: Any, zeros: Any
    ) -> None:
        """`count` results."""
        low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
        for j in range(0, count, LANES):
            lanes = (1 << min(LANES, count - j)) - 1
            one, other = (_bytes(a + j * a_step, a_step, signed, lanes), _bytes(b + j * b_step, b_step, signed, lanes))
            found = formula(one, other, factors[0], factors[1], factors[2], zeros[0], zeros[1])
            store_bytes(y + j, round_to_bytes(found, np.float32(0), low, high), lanes)

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
        codes: Address,
        part: int,
        parts: int,
    ) -> None:
        """Rows of results from two rows of bytes, whose steps are from row to row, within one, and between groups of
        rows that are together. `codes` are all bytes: of what becomes of them next to a byte that all of a long row
        meet, a table is made."""
        factors = np.float32(first_factor), np.float32(second_factor), np.float32(addend)
        zeros = np.float32(first_zero), np.float32(second_zero)
        table = stack_array(np.uint8, 16)
        place = address_of(table)
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
            count = min(length - begin, PIECE)
            y += begin
            if count <= CODES or a_step == b_step or not TABLES:
                a, b = a + begin * a_step, b + begin * b_step
                pair_line(a, a_step, b, b_step, y, count, signed, factors, zeros)
            elif b_step == 0:
                pair_line(codes, 1, b, 0, place, CODES, signed, factors, zeros)
                lookup_line(place, a + begin, y, count)
            else:
                pair_line(a, 0, codes, 1, place, CODES, signed, factors, zeros)
                lookup_line(place, b + begin, y, count)

    return paired_bytes


_SUMS, _PRODUCTS = _paired(_sum), _paired(_product)


@range_kernel
def averaged_rows(
    source: Address,
    target: Address,
    rows: int,
    length: int,
    signed: int,
    x_zero: int,
    factor: float,
    y_zero: int,
    part: int,
    parts: int,
) -> None:
    """The average of each row of bytes, less its zero point and multiplied by a factor, as a byte."""
    low, high = (np.float32(-128), np.float32(127)) if signed != 0 else (np.float32(0), np.float32(255))
    first, last = share(rows, part, parts)
    for row in range(first, last):
        x, total = source + row * length, np.int32(0)
        if signed != 0:
            for j in range(length):
                total += np.int32(i8(x)[j])
        else:
            for j in range(length):
                total += np.int32(u8(x)[j])
        average = np.float32(total - x_zero * length) / np.float32(length) * np.float32(factor)
        u8(target)[row] = round_to_byte(average, np.float32(y_zero), low, high)


def _numbers(step: Step, *indices: int) -> list[np.ndarray] | None:
    """Constants of one element, f32 steps first and zero points after; zero if absent."""
    found = []
    for index in indices:
        held = step.constant(index)
        if held is None and index < len(step.inputs) and step.inputs[index] is not None:
            return None
        found.append(np.zeros((), np.int32) if held is None else held)
    return [item.reshape(()) for item in found] if all(item.size == 1 for item in found) else None


@native(qlinear_add, qlinear_mul)
def plan_pair(step: Step) -> Planned:
    """Plan constant scales and zero points, for factors that repeat along the first or the last axes."""
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
        codes=step.constant_buffer(np.arange(CODES, dtype=np.uint8)),
    )


def _three(values: list[int], missing: int) -> tuple[int, int, int]:
    """Of three dims, the outer ones filled in where they are missing."""
    outer, middle, inner_most = [missing, missing, missing, *values][-3:]
    return outer, middle, inner_most


@native(qlinear_global_average_pool)
def plan_global_average_pool(step: Step) -> Planned:
    """Plan channels-first inputs with constant scales and zero points."""
    x, y, held = step.inputs[0], step.output(), _numbers(step, 1, 3, 2, 4)
    if x is None or held is None or x.dtype not in BYTES or step.attributes["channels_last"] or not x.count:
        return None
    x_scale, y_scale, x_zero, y_zero = held
    if x_scale.dtype != F32 or y_scale.dtype != F32:
        return None
    with np.errstate(all="ignore"):
        factor = float(x_scale / y_scale)
    return Launch(
        averaged_rows,
        step.parts(y.count, x.count / 8),
        source=x,
        target=y,
        rows=y.count,
        length=x.count // y.count,
        signed=int(x.dtype != np.uint8),
        x_zero=int(x_zero),
        factor=factor,
        y_zero=int(y_zero),
    )


@native(qlinear_sigmoid, qlinear_leaky_relu)
def plan_function(step: Step) -> Planned:
    """Plan constant scales and zero points."""
    x, compute = step.inputs[0], step.node.op.compute
    held = [step.constant(index) for index in range(1, len(step.inputs))]
    computed = any(item is None and given is not None for item, given in zip(held, step.inputs[1:], strict=True))
    if x is None or x.dtype not in BYTES or compute is None or computed:
        return None
    own = {"alpha": step.attributes["alpha"]} if "alpha" in step.attributes else {}
    table = step.constant_buffer(table_of(x.dtype, lambda codes: compute(codes, *held, **own)))
    return launch_lookup(step, x, table, step.output(), 1, x.count, x.count)


@native(qlinear_concat)
def plan_concat(step: Step) -> Planned:
    """Plan constant scales and zero points."""
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
        table = table_of(
            x.dtype,
            lambda codes, own=own: stored(real(codes, *own), scale, zero, zero),  # type: ignore[misc]
        )
        length, target = math.prod(x.shape[axis:]), y.view((rows * row - start,), start)
        launches.append(launch_lookup(step, x, step.constant_buffer(table), target, rows, length, row))
        start += length
    return launches
