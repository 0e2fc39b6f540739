"""Requantization: int32 sums of byte products corrected for zero points and written as int32, f32 or rounded bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.address import f32, i8, i32, u8
from ....runtime.jit.range_kernel import inlined, inner
from ....runtime.simd.branchless_math import rint
from ....runtime.simd.bytes import load_i32, store_bytes, store_i32
from ....runtime.simd.memory import load_masked, store_masked
from ....runtime.simd.vector import LANES, bits, select, splat, to_float

MAGIC = np.float32(3 << 22)
"""Added to a small number it leaves the nearest whole one (half to even) in the lowest bits."""
INTEGERS, FLOATS, BYTES, SIGNED_BYTES = range(4)
"""Forms of results."""


@inner
def load_zero_point(address: Any, signed: Any) -> Any:
    """A zero point, 0 if the address is 0."""
    if address == 0:
        return np.int32(0)
    return np.int32(i8(address)[0]) if signed != 0 else np.int32(u8(address)[0])


@inlined
def round_to_byte(value: Any, zero: Any, low: Any, high: Any) -> Any:
    """The nearest integer (half to even) and `zero`, between two bounds; NaN is the lower one."""
    integer = rint(value) + zero
    integer = integer if integer > low else low
    return np.int32(integer if integer < high else high)


@inlined
def round_to_bytes(values: Any, zero: Any, low: Any, high: Any) -> Any:
    """As `round_to_byte`, for vectors; what they hold is in the lowest byte of every lane."""
    lower, upper = low - zero, high - zero
    bounded = select(values > lower, values, lower)
    bounded = select(bounded < upper, bounded, upper)
    return bits(bounded + MAGIC) + np.int32(zero)


@inner
def requantize_columns(
    sums: Any,
    rows: Any,
    width: Any,
    form: Any,
    row_zeros: Any,
    row_sums: Any,
    column_zeros: Any,
    column_terms: Any,
    multipliers: Any,
    by_row: Any,
    integer_bias: Any,
    float_bias: Any,
    zero: Any,
    y: Any,
    y_row: Any,
) -> None:
    """Rows of sums [rows, 32] as results `y_row` bytes apart.

    Args:
        row_zeros, row_sums: i32 for each row: its zero point, and what its elements add up to.
        column_zeros, column_terms: i32 for each column: its zero point, and its sum less the zero point for each
            element.
        multipliers: f32 for each column, or for each row where `by_row`.
        integer_bias, float_bias: i32 added to sums, and f32 added to real results, laid out as the multipliers; 0 for
            none.
        zero: zero point of the results.
    """
    low, high = (np.float32(-128), np.float32(127)) if form == SIGNED_BYTES else (np.float32(0), np.float32(255))
    for begin in range(0, width, LANES):
        lanes = (1 << min(LANES, width - begin)) - 1
        zeros, terms = (
            bits(load_masked(column_zeros + 4 * begin, lanes)),
            bits(load_masked(column_terms + 4 * begin, lanes)),
        )
        factors = (
            splat(np.float32(0)) if by_row != 0 or form == INTEGERS else load_masked(multipliers + 4 * begin, lanes)
        )
        shifts = (
            bits(load_masked(integer_bias + 4 * begin, lanes)) if by_row == 0 and integer_bias != 0 else zeros - zeros
        )
        added = (
            load_masked(float_bias + 4 * begin, lanes) if form == FLOATS and float_bias != 0 else splat(np.float32(0))
        )
        for row in range(rows):
            own = i32(row_zeros)[row]
            line = load_i32(sums + 128 * row + 4 * begin) - zeros * splat(i32(row_sums)[row])
            if own != 0:
                line = line - terms * splat(own)
            if by_row != 0 and integer_bias != 0:
                line = line + splat(i32(integer_bias)[row])
            line = line + shifts
            at = y + row * y_row
            if form == INTEGERS:
                store_i32(at + 4 * begin, line, lanes)
                continue
            real = to_float(line) * (splat(f32(multipliers)[row]) if by_row != 0 else factors)
            if form == FLOATS:
                store_masked(at + 4 * begin, real + added if float_bias != 0 else real, lanes)
            else:
                store_bytes(at + begin, round_to_bytes(real, zero, low, high), lanes)


@inner
def requantize_rows(
    sums: Any,
    rows: Any,
    width: Any,
    form: Any,
    zeros: Any,
    terms: Any,
    shifts: Any,
    multipliers: Any,
    zero: Any,
    y: Any,
    y_row: Any,
) -> None:
    """Rows of sums [rows, 32] as results `y_row` bytes apart.

    Args:
        zeros: i32 for each row, its zero point; 0 for none.
        terms: i32 for each column, its sum less its zero point for each element.
        shifts, multipliers: i32 and f32 for each row: what is added to its sums, and what these are multiplied by.
        zero: zero point of the results.
    """
    low, high = (np.float32(-128), np.float32(127)) if form == SIGNED_BYTES else (np.float32(0), np.float32(255))
    for row in range(rows):
        shift, at = splat(i32(shifts)[row]), y + row * y_row
        for begin in range(0, width, LANES):
            lanes = (1 << min(LANES, width - begin)) - 1
            line = load_i32(sums + 128 * row + 4 * begin) + shift
            if zeros != 0:
                line = line - load_i32(terms + 4 * begin) * splat(i32(zeros)[row])
            if form == INTEGERS:
                store_i32(at + 4 * begin, line, lanes)
            else:
                store_bytes(
                    at + begin, round_to_bytes(to_float(line) * splat(f32(multipliers)[row]), zero, low, high), lanes
                )
