"""GGUF values: the thirteen value types, their Python representation, and encoding.

A number is a numpy scalar, a bool a `bool`, a string a `str`. An array of numbers or bools is a 1-D numpy array, an
array of strings a list of `str` or a `StringArray` (an empty list is an empty array of strings), an array of arrays a
tuple. A string that is not UTF-8 is a `BrokenText`.

Other Python values get the narrowest lossless type: int the first of u32, i64, u64 that fits, float f64 (pass
numpy.float32 for keys that llama.cpp reads), bytes an array of u8, a list of numbers an array of i32, i64, u64 or f64.
Values without a GGUF type encode to `None`.

Source: the GGUF specification (ggml, docs/gguf.md); gguf.cpp for what readers accept.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.string_array import StringArray
from ....runtime.ir.graph import Meta

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ValueType:
    """A value type.

    Attributes:
        number: enum value in the file.
        size: bytes of one value; for strings and arrays, of the fields before the content with 8-byte lengths.
        numpy: kind and item size, None for strings and arrays.
    """

    number: int
    name: str
    size: int
    numpy: str | None = None


VALUE_TYPES = tuple(
    ValueType(number, *row)
    for number, row in enumerate(
        (
            ("u8", 1, "u1"),
            ("i8", 1, "i1"),
            ("u16", 2, "u2"),
            ("i16", 2, "i2"),
            ("u32", 4, "u4"),
            ("i32", 4, "i4"),
            ("f32", 4, "f4"),
            ("bool", 1, "b1"),
            ("string", 8, None),
            ("array", 12, None),
            ("u64", 8, "u8"),
            ("i64", 8, "i8"),
            ("f64", 8, "f8"),
        )
    )
)
BY_NAME = {kind.name: kind for kind in VALUE_TYPES}
BY_NUMPY = {kind.numpy: kind for kind in VALUE_TYPES if kind.numpy is not None}
U8, BOOL, STRING, ARRAY = (BY_NAME[name] for name in ("u8", "bool", "string", "array"))
MAX_KEY = (1 << 16) - 1
"""Maximum length of a key in bytes, from the specification."""


class BrokenText(bytes):
    """A GGUF string that is not UTF-8."""


def text(value: str | bytes) -> bytes | None:
    """A string with its length prefix; None for a `str` with lone surrogates."""
    try:
        data = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        return None
    return struct.pack("<Q", len(data)) + data


def key_bytes(key: Any) -> bytes | None:
    """A key with its length prefix; None if it is not a valid key."""
    data = text(key) if isinstance(key, str) and key else None
    return data if data is not None and len(data) - 8 <= MAX_KEY else None


def encoded(value: Meta) -> bytes | None:
    """A value after its type number; None if GGUF has no type for it."""
    scalar = _scalar(value)
    if scalar is not None:
        return scalar
    content = _arrays(value)
    return None if content is None else struct.pack("<I", ARRAY.number) + content


def _scalar(value: Meta) -> bytes | None:
    import numpy

    if isinstance(value, str | BrokenText):
        data = text(value)
        return None if data is None else struct.pack("<I", STRING.number) + data
    if isinstance(value, int) and not isinstance(value, bool):
        fitting = _integer_type((value,), ("u4", "i8", "u8"))
        value = None if fitting is None else numpy.dtype(fitting).type(value)
    elif isinstance(value, bool | float) or (isinstance(value, numpy.ndarray) and value.ndim == 0):
        value = numpy.asarray(value)[()]
    kind = _numpy_type(value.dtype) if isinstance(value, numpy.generic) else None
    if kind is None:
        return None
    number: bytes = value.astype(value.dtype.newbyteorder("<")).tobytes()
    return struct.pack("<I", kind.number) + number


def _arrays(value: Meta) -> bytes | None:
    """Element type, count and elements of an array, nested arrays included; None if it is not an array."""
    parts: list[bytes] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            parts.append(struct.pack("<IQ", ARRAY.number, len(item)))
            stack.extend(reversed(item))
            continue
        content = _array(item)
        if content is None:
            return None
        parts.append(content)
    return b"".join(parts)


def _array(value: Meta) -> bytes | None:
    import numpy

    value = value.tolist() if isinstance(value, StringArray) else value
    if isinstance(value, list) and all(isinstance(item, str | BrokenText) for item in value):
        texts = [text(item) for item in value]
        known = [data for data in texts if data is not None]
        return struct.pack("<IQ", STRING.number, len(value)) + b"".join(known) if len(known) == len(texts) else None
    if isinstance(value, bytes) and not isinstance(value, BrokenText):
        value = numpy.frombuffer(value, numpy.uint8)
    elif isinstance(value, list):
        value = _numbers(value)
    if not isinstance(value, numpy.ndarray) or value.ndim != 1:
        return None
    kind = _numpy_type(value.dtype)
    if kind is None:
        return None
    return (
        struct.pack("<IQ", kind.number, value.size) + value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    )


def _numbers(items: Sequence[Any]) -> np.ndarray | None:
    """A list of numbers or bools of one type as an array."""
    import numpy

    kinds = {type(item) for item in items}
    if kinds == {bool}:
        return numpy.array(items, bool)
    if kinds == {int}:
        fitting = _integer_type(items, ("i4", "i8", "u8"))
        return None if fitting is None else numpy.array(items, fitting)
    return numpy.array(items, numpy.float64) if kinds == {float} else None


def _integer_type(items: Sequence[int], candidates: Sequence[str]) -> str | None:
    import numpy

    low, high = min(items), max(items)
    return next((name for name in candidates if numpy.iinfo(name).min <= low and high <= numpy.iinfo(name).max), None)


def _numpy_type(dtype: np.dtype) -> ValueType | None:
    return BY_NUMPY.get(f"{dtype.kind}{dtype.itemsize}")
