"""Rounding as in libggml's encoders: nearest integers and f16, on vectors.

Source: ggml-quants.c, ggml-impl.h.
"""

from __future__ import annotations

from typing import Any

from ..jit.range_kernel import inner
from .vector import bits, from_bits, select, to_float, to_int

MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves the integer in the mantissa


@inner
def nearest(value: Any) -> Any:
    """The nearest integer, ties to even, as a float; beyond 2**22 and for NaN whatever the mantissa then holds, as in
    libggml."""
    return from_bits((bits(value + MAGIC) & 0x7FFFFF) | 0x4B000000) - MAGIC


@inner
def nearest_integer(value: Any) -> Any:
    """`nearest` as an integer."""
    return (bits(value + MAGIC) & 0x7FFFFF) - 0x400000


@inner
def clamp(value: Any, low: Any, high: Any) -> Any:
    """`value` within bounds, as ``MAX(low, MIN(high, value))``."""
    value = select(value < high, value, high)
    return select(value > low, value, low)


@inner
def byte(code: Any) -> Any:
    """The lowest byte of an integer, as a float."""
    return to_float(code & 255)


@inner
def signed_byte(code: Any) -> Any:
    """The lowest byte of an integer, read as signed, as a float."""
    return to_float(((code & 255) ^ 128) - 128)


@inner
def to_f16(value: Any) -> Any:
    """The bits of `value` rounded to half precision, ties to even, as an integer; NaN becomes 0x7E00 with its sign."""
    pattern = bits(value)
    magnitude = pattern & 0x7FFFFFFF
    base = from_bits(magnitude) * 2.0**112 * 2.0**-110
    exponent = magnitude & 0x7F800000
    exponent = select(exponent < 0x38800000, 0x38800000, exponent)
    rounded = bits(from_bits(exponent + 0x07800000) + base)
    finite = ((rounded >> 13) & 0x7C00) + (rounded & 0x0FFF)
    return ((pattern >> 16) & 0x8000) | select(magnitude > 0x7F800000, 0x7E00, finite)


@inner
def from_f16(pattern: Any) -> Any:
    """The value of half-precision bits."""
    magnitude = (pattern & 0x7FFF) << 13
    scaled = from_bits(magnitude) * 2.0**112
    special = from_bits(magnitude | 0x7F800000)
    value = bits(select(magnitude >= 0x0F800000, special, scaled))
    return from_bits(value | ((pattern & 0x8000) << 16))


@inner
def truncated(value: Any) -> Any:
    """Cut towards zero as an integer; out of range and NaN give the lowest integer, as x86 does."""
    fits = abs(value) < 2147483648.0
    return select(fits, to_int(select(fits, value, 0.0)), -2147483648)


@inner
def rounded(value: Any) -> Any:
    """The nearest integer, ties away from zero; out of range and NaN as in `truncated`."""
    fits = abs(value) < 2147483648.0
    whole = to_int(select(fits, value, 0.0))
    rest = value - to_float(whole)
    away = select(rest >= 0.5, 1, 0) - select(rest <= -0.5, 1, 0)
    return select(fits, whole + away, -2147483648)
