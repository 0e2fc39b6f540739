"""GGUF header reader: counts, strings and values, read forward in small windows and bounds-checked."""

from __future__ import annotations

import struct
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, LimitError
from ....runtime.base.string_array import StringArray
from ....runtime.base.units import counted
from ....runtime.ir.graph import Meta
from ....runtime.tensor.file import Source
from .strings import SLICE, short_strings
from .values import ARRAY, BOOL, STRING, VALUE_TYPES, BrokenText, ValueType

if TYPE_CHECKING:
    import numpy as np

WINDOW = 1 << 18
BULK_STRINGS = 256
"""Number of strings from which on an array is decoded in bulk."""
STRING_COST = 64
"""Memory overhead of a short string in bytes."""
ARRAY_COST = 160
DAMAGED = "The file is damaged; download it again, or ask its author"
TRUNCATED = "The file is truncated or damaged; download it again"


@dataclass
class _Open:
    """An array of arrays whose elements are being read."""

    count: int
    items: list[Any] = field(default_factory=list)


class Cursor:
    """A forward-only read position in the header.

    Args:
        start: offset of the first byte.
        version: version 1 has counts and lengths of 4 bytes, later versions 8.
        big: whether the file is big-endian.
    """

    def __init__(self, source: Source, start: int, version: int, big: bool) -> None:
        self.source = source
        self.order: Literal["<", ">"] = ">" if big else "<"
        self._u32 = struct.Struct(self.order + "I")
        self._u64 = struct.Struct(self.order + "Q")
        self._count = self._u32 if version == 1 else self._u64
        self._window = b""
        self._start = start
        self._at = 0

    @property
    def position(self) -> int:
        """Offset from the start of the file in bytes."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """Bytes to the end of the file."""
        return self.source.size - self.position

    @property
    def count_size(self) -> int:
        """Bytes of a count or length."""
        return self._count.size

    def size(self, kind: ValueType) -> int:
        """Minimum size of a value in bytes."""
        return kind.size - (8 - self._count.size) * (kind.numpy is None)

    def malformed(self, code: str, why: str, at: int | None = None, hint: str = DAMAGED, **sides: Any) -> FormatError:
        """A FormatError at an offset, by default the current one."""
        return FormatError(code, self.source.path, why, at=self.position if at is None else at, hint=hint, **sides)

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        if self._at + nbytes > len(self._window):
            self._fill(nbytes)
        data = self._window[self._at : self._at + nbytes]
        self._at += nbytes
        return data

    def skip(self, nbytes: int) -> None:
        """Skip bytes."""
        self._start, self._window, self._at = self.position + nbytes, b"", 0

    def u32(self) -> int:
        value: int = self._u32.unpack(self.take(4))[0]
        return value

    def u64(self) -> int:
        value: int = self._u64.unpack(self.take(8))[0]
        return value

    def count(self) -> int:
        value: int = self._count.unpack(self.take(self._count.size))[0]
        return value

    def items(self, code: str, what: str, least: int) -> int:
        """A count of items of at least `least` bytes each."""
        at, count = self.position, self.count()
        if count * least > self.left:
            left = counted(self.left, "byte", verb="is")
            why = f"{count:,} {what} of at least {least} bytes are declared, {left} left"
            raise self.malformed(code, why, at, hint=TRUNCATED)
        return count

    def string(self, what: str) -> bytes:
        """A string's bytes."""
        length = self.items("E-GGUF-STRING", f"bytes of {what}", 1)
        self.source.budget.charge(length + STRING_COST, what, at=self.position)
        return self.take(length)

    def kind(self) -> ValueType:
        """A value type."""
        number = self.u32()
        if number >= len(VALUE_TYPES):
            why = f"unknown value type {number}"
            raise self.malformed("E-GGUF-VALUE-TYPE", why, self.position - 4, expected=f"0 to {len(VALUE_TYPES) - 1}")
        return VALUE_TYPES[number]

    def value(self, kind: ValueType, key: str) -> Meta:
        """A value of that type; `key` is for errors."""
        if kind is ARRAY:
            return self._arrays(key)
        if kind is STRING:
            return decoded(self.string(f"the value of {key!r}"))
        value = self._numbers(kind, 1)[0]
        return bool(value) if kind is BOOL else value

    def _arrays(self, key: str) -> Meta:
        """An array, with arrays in it to the depth that the limits allow."""
        stack: list[_Open] = []
        while True:
            kind = self.kind()
            count = self.items("E-GGUF-ARRAY", f"elements of {key!r}", self.size(kind))
            self.source.budget.charge(ARRAY_COST, f"the array {key!r}", at=self.position)
            self.source.budget.entry(1, "arrays", at=self.position)
            if kind is ARRAY and count:
                stack.append(_Open(count))
                self._check_depth(len(stack), key)
                continue
            item = () if kind is ARRAY else self._strings(count) if kind is STRING else self._numbers(kind, count)
            while stack:
                stack[-1].items.append(item)
                if len(stack[-1].items) < stack[-1].count:
                    break
                item = tuple(stack.pop().items)
            else:
                return item

    def _check_depth(self, depth: int, key: str) -> None:
        most = self.source.budget.limits.depth
        if depth > most:
            why = f"arrays in {key!r} are nested deeper than {most}"
            raise LimitError(
                "E-LIMIT-DEPTH", self.source.path, why, at=self.position, hint="Raise it with --limit depth=1000"
            )

    def _numbers(self, kind: ValueType, count: int) -> np.ndarray:
        import numpy

        assert kind.numpy is not None
        start = self.position
        self.source.budget.charge(count * kind.size, "an array", at=start)
        data = self.take(count * kind.size)
        if kind is BOOL:
            values = numpy.frombuffer(data, numpy.uint8) if data else numpy.empty(0, numpy.uint8)
            if values.size and values.max() > 1:
                at = start + int((values > 1).argmax())
                raise self.malformed("E-GGUF-BOOL", "a bool is neither 0 nor 1", at, found=int(values.max()))
            return values.view(bool)
        native = numpy.dtype(kind.numpy)
        if not data:
            return numpy.empty(0, native)
        return numpy.frombuffer(data, native.newbyteorder(self.order)).astype(native, copy=False)

    def _strings(self, count: int) -> list[str | BrokenText] | StringArray:
        """The strings of an array; many short ones stay encoded in one buffer."""
        self.source.budget.charge(count * STRING_COST, "strings", at=self.position)
        found: list[str | BrokenText] = []
        while len(found) < count:
            left = count - len(found)
            short = self._short(left) if left >= BULK_STRINGS else None
            if short is not None and len(short) == count:
                return short
            found += short or self._whole(left)
        return found

    def _short(self, count: int) -> StringArray | None:
        """The next short strings of an array, at most `count`."""
        import numpy

        low = 0 if self.order == "<" else self._count.size - 1
        texts, lengths, left = [], [numpy.zeros(0, numpy.int64)], count
        while left:
            if len(self._window) - self._at < min(SLICE, self.left):
                self._fill(min(SLICE, self.left))
            short = short_strings(self._window, self._at, left, self._count.size, low)
            if short is None or not len(short[1]):
                break
            self.source.budget.charge(short[2] - self._at, "strings", at=self.position)
            self.source.budget.entry(0)
            texts.append(short[0])
            lengths.append(short[1])
            left -= len(short[1])
            self._at = short[2]
        return StringArray(b"".join(texts), numpy.concatenate(lengths, dtype=numpy.int64).cumsum()) if texts else None

    def _whole(self, most: int) -> list[str | BrokenText]:
        """The next strings of an array, at most `most`: those entirely within the window, or one."""
        unpack, width = self._count.unpack_from, self._count.size
        if len(self._window) - self._at < width:
            self._fill(width)
        window, at = self._window, self._at
        parts: list[bytes] = []
        last, append = len(window) - width, parts.append
        while at <= last and most:
            start = at + width
            end = start + unpack(window, at)[0]
            if end > len(window):
                break
            append(window[start:end])
            at = end
            most -= 1
        self.source.budget.charge(at - self._at, "strings", at=self.position)
        self.source.budget.entry(0)
        self._at = at
        return _all_decoded(parts) if parts else [decoded(self.string("a string"))]

    def _fill(self, nbytes: int) -> None:
        """Move the window to the current position and fill it with `nbytes` bytes."""
        if nbytes > self.left:
            why = f"the header needs {nbytes:,} more bytes, {self.left:,} are left"
            raise self.malformed("E-GGUF-TRUNCATED", why, hint=TRUNCATED)
        start = self.position
        self._window = self.source.read(start, min(max(nbytes, WINDOW), self.source.size - start))
        self._start, self._at = start, 0


def decoded(data: bytes) -> str | BrokenText:
    """A string's text; its bytes if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return BrokenText(data)


def _all_decoded(parts: list[bytes]) -> list[Any]:
    try:
        return list(map(bytes.decode, parts))
    except UnicodeDecodeError:
        return list(map(decoded, parts))
