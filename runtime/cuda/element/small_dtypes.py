"""Elements of 8 bits and fewer: float8 and float4 conversion to and from float32, and sub-byte integers.

Source: the OCP 8-bit floating point specification and the microscaling formats (revisions 1.0); the variants without
negative zero are those of Noune et al. 2022 (arXiv:2206.02915).
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from .bits import bits, from_bits, inlined

FINITE, NAN_LAST, IEEE, UNSIGNED_ZERO = range(4)
"""Codes above the largest finite value: all are finite; the last is NaN; infinity, then NaN; NaN instead of -0."""


@dataclass(frozen=True)
class Small:
    """A float8 or float4 dtype: sign, exponent and fraction bits.

    Attributes:
        top: the code of the largest number.
        largest: that number.
    """

    width: int
    fraction: int
    bias: int
    top: int
    beyond: int
    largest: float

    @property
    def load(self) -> str:
        """Code that converts a code to float32."""
        return f"small({{}}, {self.width}, {self.fraction}, {self.bias}, {self.top}, {self.beyond})"

    @property
    def store(self) -> str:
        """Code that rounds to the nearest code."""
        return f"to_small(to_float32({{}}), {self.width}, {self.fraction}, {self.bias}, {self.top}, {self.beyond})"


SMALL = {
    "float8_e4m3fn": Small(8, 3, 7, 0x7E, NAN_LAST, 448.0),
    "float8_e5m2": Small(8, 2, 15, 0x7B, IEEE, 57344.0),
    "float8_e4m3fnuz": Small(8, 3, 8, 0x7F, UNSIGNED_ZERO, 240.0),
    "float8_e5m2fnuz": Small(8, 2, 16, 0x7F, UNSIGNED_ZERO, 57344.0),
    "float4_e2m1fn": Small(4, 1, 1, 0x7, FINITE, 6.0),
}


@inlined
def small(pattern: Any, width: int, fraction: int, bias: int, top: int, beyond: int) -> Any:
    """The float32 value of a code."""
    code = np.int64(pattern) & np.int64((1 << width) - 1)
    rest = code & np.int64((1 << (width - 1)) - 1)
    exponent, tail = rest >> np.int64(fraction), rest & np.int64((1 << fraction) - 1)
    found = from_bits(np.int32(((exponent + np.int64(127 - bias)) << np.int64(23)) | (tail << np.int64(23 - fraction))))
    if exponent == 0:
        found = np.float32(tail) * np.float32(2.0 ** (1 - bias - fraction))
    if rest > top:
        found = np.float32(np.inf) if beyond == IEEE and rest == top + 1 else np.float32(np.nan)
    if beyond == UNSIGNED_ZERO and code == 128:
        found = np.float32(np.nan)
    return found if code == rest else -found


@inlined
def to_small(x: Any, width: int, fraction: int, bias: int, top: int, beyond: int) -> Any:
    """The code of the nearest value, ties to even."""
    pattern = np.int64(bits(x)) & np.int64(0xFFFFFFFF)
    sign, size = pattern >> np.int64(31), pattern & np.int64(0x7FFFFFFF)
    exponent = max(size >> np.int64(23), np.int64(1))
    whole = (size & np.int64(0x7FFFFF)) + (np.int64(0x800000) if size >= 0x800000 else np.int64(0))
    least = max(exponent - np.int64(127), np.int64(1 - bias))
    drop = min(least - exponent + np.int64(150 - fraction), np.int64(32))
    kept, cut, half = whole >> drop, whole & ((np.int64(1) << drop) - np.int64(1)), np.int64(1) << (drop - np.int64(1))
    if cut > half or (cut == half and kept % 2 == 1):
        kept += np.int64(1)
    code = ((least + np.int64(bias - 1)) << np.int64(fraction)) + kept
    if code > top:
        code = np.int64(top) if beyond == FINITE else np.int64(top + 1)
    if size > 0x7F800000:
        code = np.int64(0) if beyond == FINITE else np.int64(top + 3) if beyond == IEEE else np.int64(top + 1)
        sign = np.int64(1) - sign if beyond == FINITE else sign
    if beyond == UNSIGNED_ZERO and (code == 0 or code > top):
        return np.uint8(0) if code == 0 else np.uint8(128)
    return np.uint8(code | (sign << np.int64(width - 1)))


@inlined
def power(pattern: Any) -> Any:
    """The power of two of an 8-bit exponent (e8m0); 255 is NaN."""
    code = np.int64(pattern)
    found = from_bits(np.int32(code << np.int64(23))) if code > 0 else from_bits(np.int32(0x400000))
    return np.float32(np.nan) if code == 255 else found


@inlined
def to_power(x: Any) -> Any:
    """The e8m0 exponent of a power of two."""
    return np.uint8((np.int64(bits(x)) >> np.int64(23)) & np.int64(255))


@inlined
def few(pattern: Any, width: int) -> Any:
    """A signed integer from the lowest bits."""
    half = np.int64(1 << (width - 1))
    return np.int8(((np.int64(pattern) & np.int64((1 << width) - 1)) ^ half) - half)


@inlined
def few_unsigned(pattern: Any, width: int) -> Any:
    """An unsigned integer from the lowest bits."""
    return np.uint8(np.int64(pattern) & np.int64((1 << width) - 1))


@inlined
def field(data: Any, at: int, index: int, width: int) -> Any:
    """Element `index` of `width`-bit integers packed from byte `at` on, the first in the lowest bits."""
    place = np.int64(index) * np.int64(width)
    byte, low = at + (place >> np.int64(3)), place & np.int64(7)
    found = np.int64(data[byte]) >> low
    if low + width > 8:
        found |= np.int64(data[byte + 1]) << (np.int64(8) - low)
    return found & np.int64((1 << width) - 1)


@inlined
def to_few(x: Any, width: int) -> Any:
    """The lowest bits of an integer."""
    return np.uint8(np.int64(x) & np.int64((1 << width) - 1))
