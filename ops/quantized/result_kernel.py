"""From sums of products of bytes to results: zero points taken out, as 32-bit integers, as real numbers, or rounded to bytes again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inlined, inner
from ...runtime.native import f32, i8, i32, u8
from ...runtime.scalar_math import rint
from ...runtime.simd import select, to_int
from ..math.lane_kernel import nearest

INTEGERS, REALS, BYTES, SIGNED_BYTES = range(4)
"""Forms of results."""


@inner
def byte_at(address: Any, signed: Any) -> Any:
    """A zero point, 0 where there is no address."""
    if address == 0:
        return np.int32(0)
    return np.int32(i8(address)[0]) if signed != 0 else np.int32(u8(address)[0])


@inlined
def rounded(value: Any, zero: Any, low: Any, high: Any) -> Any:
    """The nearest whole number (half to even) and `zero`, between two bounds; NaN is the lower one."""
    whole = rint(value) + zero
    whole = whole if whole > low else low
    return np.int32(whole if whole < high else high)


@inlined
def byte_lanes(values: Any, zero: Any, low: Any, high: Any) -> Any:
    """As `rounded`, for vectors."""
    whole = nearest(values) + zero
    whole = select(whole > low, whole, low)
    return to_int(select(whole < high, whole, high))


@inner
def results(
    sums: Any, rows: Any, width: Any, form: Any, row_zeros: Any, row_sums: Any, column_zeros: Any, column_terms: Any, multipliers: Any, by_row: Any,
    integers: Any, reals: Any, zero: Any, y: Any, y_row: Any,
) -> None:
    """Rows of sums [rows, 32] as results `y_row` bytes apart.

    Args:
        row_zeros, row_sums: i32 for each row: its zero point, and what its elements add up to.
        column_zeros, column_terms: i32 for each column: its zero point, and its sum less the zero point for each element.
        multipliers: f32 for each column, or for each row where `by_row`.
        integers, reals: i32 added to sums, and f32 added to real results, laid out as the multipliers; 0 for none.
        zero: zero point of the results.
    """
    for row in range(rows):
        line = i32(sums + 128 * row)
        own, total = i32(row_zeros)[row], i32(row_sums)[row]
        zeros, terms = i32(column_zeros), i32(column_terms)
        for j in range(width):
            line[j] = line[j] - zeros[j] * total - own * terms[j]
        if integers != 0:
            more = i32(integers)
            if by_row != 0:
                for j in range(width):
                    line[j] += more[row]
            else:
                for j in range(width):
                    line[j] += more[j]
        if form == INTEGERS:
            out = i32(y + row * y_row)
            for j in range(width):
                out[j] = line[j]
            continue
        real = f32(sums + 128 * row)
        factors = f32(multipliers)
        if by_row != 0:
            factor = factors[row]
            for j in range(width):
                real[j] = np.float32(line[j]) * factor
        else:
            for j in range(width):
                real[j] = np.float32(line[j]) * factors[j]
        if form == REALS:
            out = f32(y + row * y_row)
            if reals != 0:
                for j in range(width):
                    out[j] = real[j] + f32(reals)[j]
            else:
                for j in range(width):
                    out[j] = real[j]
        elif form == BYTES:
            out = u8(y + row * y_row)
            for j in range(width):
                out[j] = rounded(real[j], zero, np.float32(0), np.float32(255))
        else:
            out = i8(y + row * y_row)
            for j in range(width):
                out[j] = rounded(real[j], zero, np.float32(-128), np.float32(127))
