"""Pickle byte reader: forward in small windows; long byte strings become file ranges."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.base.limits import Budget
from ....runtime.base.units import counted
from ....runtime.tensor.storage import Held, Region, Storage

WINDOW = 1 << 14
SPAN = 4096
"""Byte strings of at least this length stay in the file."""
LINE = 1 << 26
NAME = 4096
DAMAGED = "The file is damaged or cut short; fetch or save it again"
LONG = 1024
"""Limit of an integer in bytes; every shorter decimal form can be printed."""


@dataclass(frozen=True)
class Carrier:
    """The storage that holds a pickle.

    Attributes:
        storage: the bytes.
        file: name for errors, such as ``model.pt!archive/data.pkl``.
        budget: limits of reading.
        base: offset in `file` of the storage's first byte.
    """

    storage: Storage
    file: str
    budget: Budget
    base: int = 0


@dataclass(frozen=True, eq=False)
class Span:
    """A byte string left in the file."""

    storage: Storage

    @property
    def nbytes(self) -> int:
        return self.storage.nbytes


class Cursor:
    """A forward-only read position in a carrier."""

    def __init__(self, carrier: Carrier, start: int) -> None:
        self.carrier = carrier
        self.end = carrier.storage.nbytes
        self._window = b""
        self._start = start
        self._at = 0

    @property
    def position(self) -> int:
        """Offset from the storage's start in bytes."""
        return self._start + self._at

    def malformed(self, code: str, why: str, at: int | None = None, **sides: Any) -> FormatError:
        """A FormatError at an offset of the storage, by default the current one."""
        place = self.carrier.base + (self.position if at is None else at)
        return FormatError(code, self.carrier.file, why, at=place, **{"hint": DAMAGED, **sides})

    def byte(self) -> int:
        """The next byte."""
        if self._at >= len(self._window):
            self._need(1)
        value = self._window[self._at]
        self._at += 1
        return value

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        if self._at + nbytes > len(self._window):
            self._need(nbytes)
        data = self._window[self._at : self._at + nbytes]
        self._at += nbytes
        return data

    def line(self) -> bytes:
        """Bytes up to a newline, which is passed over."""
        found = self._window.find(b"\n", self._at)
        size = WINDOW
        while found < 0:
            left = self.end - self.position
            if len(self._window) - self._at >= min(LINE, left):
                raise self.malformed("E-PKL-LINE", "a line of the pickle does not end")
            self._need(min(size, left))
            found = self._window.find(b"\n", self._at)
            size *= 4
        data = self._window[self._at : found]
        self._at = found + 1
        return data

    def data(self, nbytes: int) -> bytes | Span:
        """A byte string, as a `Span` if it is long."""
        if nbytes < SPAN:
            return self.take(nbytes)
        self.check(nbytes)
        start = self.position
        self._start, self._window, self._at = start + nbytes, b"", 0
        storage = self.carrier.storage
        if isinstance(storage, Region):
            return Span(Region(storage.source, storage.offset + start, nbytes))
        return Span(Held(storage.read(start, start + nbytes)))

    def check(self, nbytes: int) -> None:
        """FormatError if fewer than `nbytes` bytes are left."""
        if nbytes > self.end - self.position:
            raise self.malformed(
                "E-PKL-TRUNCATED", f"the pickle needs {nbytes:,} more bytes, {self.end - self.position:,} are left"
            )

    def _need(self, nbytes: int) -> None:
        """Move the window so that it starts here and holds `nbytes` bytes."""
        self.check(nbytes)
        start = self.position
        size = min(max(nbytes, WINDOW), self.end - start)
        consumed = 0 if len(self._window) > WINDOW else self._at
        self.carrier.budget.charge(
            consumed + (nbytes if nbytes > WINDOW else 0), "the pickle", at=self.carrier.base + start
        )
        self._window, self._start, self._at = bytes(self.carrier.storage.read(start, start + size)), start, 0


def _number(form: str) -> Callable[[Cursor], Any]:
    layout = struct.Struct(form)

    def read(cursor: Cursor) -> Any:
        return layout.unpack(cursor.take(layout.size))[0]

    return read


def _sized(width: int, convert: Callable[[Cursor, int], Any]) -> Callable[[Cursor], Any]:
    def read(cursor: Cursor) -> Any:
        return convert(cursor, int.from_bytes(cursor.take(width), "little"))

    return read


def _text(cursor: Cursor, nbytes: int) -> str:
    try:
        return cursor.take(nbytes).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise cursor.malformed("E-PKL-TEXT", "a text is not UTF-8") from error


def _long(cursor: Cursor, nbytes: int) -> int:
    if nbytes > LONG:
        cursor.check(nbytes)
        raise cursor.malformed("E-PKL-LONG", f"an integer has {counted(nbytes, 'byte')}", expected=f"at most {LONG:,}")
    return int.from_bytes(cursor.take(nbytes), "little", signed=True)


def _string(cursor: Cursor, nbytes: int) -> str | bytes | Span:
    if nbytes >= 1 << 31:
        raise cursor.malformed("E-PKL-TRUNCATED", "a byte string has a negative length")
    data = cursor.data(nbytes)
    return data if isinstance(data, Span) else native_text(data)


def native_text(data: bytes) -> str | bytes:
    """A byte string of Python 2: text if it is ASCII, else bytes."""
    return data.decode("ascii") if data.isascii() else data


def _lines(cursor: Cursor) -> tuple[str, str]:
    module, name = cursor.line(), cursor.line()
    if len(module) + len(name) > NAME:
        raise cursor.malformed(
            "E-PKL-NAME", f"a name has {counted(len(module) + len(name), 'byte')}", expected=f"at most {NAME:,}"
        )
    try:
        return module.decode(), name.decode()
    except UnicodeDecodeError as error:
        raise cursor.malformed("E-PKL-NAME", "a name is not UTF-8") from error


ARGUMENTS: dict[str, Callable[[Cursor], Any]] = {
    "u1": Cursor.byte,
    "u2": _number("<H"),
    "u4": _number("<I"),
    "u8": _number("<Q"),
    "i4": _number("<i"),
    "f8": _number(">d"),
    "line": Cursor.line,
    "lines": _lines,
    "long1": _sized(1, _long),
    "long4": _sized(4, _long),
    "data1": _sized(1, Cursor.data),
    "data4": _sized(4, Cursor.data),
    "data8": _sized(8, Cursor.data),
    "text1": _sized(1, _text),
    "text4": _sized(4, _text),
    "text8": _sized(8, _text),
    "string1": _sized(1, _string),
    "string4": _sized(4, _string),
}
