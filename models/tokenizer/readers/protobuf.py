"""Protocol buffer decoding: the numbered fields of a message, bounds-checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Field:
    """A field: its number, and its value as an integer or as bytes; `at` is where the message has it."""

    number: int
    value: int | bytes
    at: int

    def text(self) -> str:
        """Bytes as text, invalid UTF-8 as U+FFFD."""
        return self.value.decode("utf-8", "replace") if isinstance(self.value, bytes) else ""

    def integer(self) -> int:
        """A signed 32-bit integer."""
        return (self.value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 if isinstance(self.value, int) else 0

    def real(self) -> float:
        """A 32-bit float."""
        return (
            struct.unpack("<f", struct.pack("<I", self.value & 0xFFFFFFFF))[0] if isinstance(self.value, int) else 0.0
        )


def fields(data: bytes, code: str, path: str | None) -> Iterator[Field]:
    """The fields of a message, in order; `code` is that of the error where it breaks off."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at, code, path)
        kind = tag & 7
        if kind == VARINT:
            number, at = _varint(data, at, code, path)
            yield Field(tag >> 3, number, start)
            continue
        if kind == BYTES:
            size, at = _varint(data, at, code, path)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise FormatError(
                code, path, f"field {tag >> 3} is of the wire type {kind}, which no such file has", at=start
            )
        if size > len(data) - at:
            raise FormatError(
                code, path, f"field {tag >> 3} needs {counted(size, 'byte')}, {len(data) - at:,} are left", at=start
            )
        content = data[at : at + size]
        at += size
        yield Field(tag >> 3, content if kind == BYTES else int.from_bytes(content, "little"), start)


def _varint(data: bytes, at: int, code: str, path: str | None) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if at + index >= len(data):
            break
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise FormatError(code, path, "a number breaks off", at=at)
