"""Sequential reader of binary fields, bounds-checked against the remaining bytes."""

from __future__ import annotations

import struct

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.tensor.file import Source

WINDOW = 1 << 13
"""Read-ahead in bytes, so that small fields do not cost a system call each."""


class Fields:
    """A read position in a source.

    Attributes:
        code: error code for a truncated file.
        at: byte offset of the next field.
    """

    def __init__(self, source: Source, code: str, at: int = 0) -> None:
        self.source = source
        self.code = code
        self.at = at
        self._window = b""
        self._start = at

    @property
    def left(self) -> int:
        """Bytes from the position to the end of the file."""
        return self.source.size - self.at

    def need(self, nbytes: int, what: str) -> None:
        """FormatError if fewer than `nbytes` bytes are left."""
        if nbytes > self.left:
            missing = counted(nbytes - self.left, "byte", verb="is")
            why = f"{missing} missing: {what} needs {nbytes:,}, {self.left:,} are left"
            hint = "The file is truncated or damaged; download it again"
            raise FormatError(self.code, self.source.path, why, at=self.at, hint=hint)

    def bytes(self, nbytes: int, what: str) -> bytes:
        """The next `nbytes` bytes."""
        first = self.at - self._start
        if first + nbytes > len(self._window):
            self.need(nbytes, what)
            self._window = self.source.read(self.at, max(nbytes, min(WINDOW, self.left)))
            self._start, first = self.at, 0
        self.at += nbytes
        return self._window[first : first + nbytes]

    def ints(self, count: int, what: str) -> tuple[int, ...]:
        """The next `count` little-endian signed 32-bit integers."""
        return struct.unpack(f"<{count}i", self.bytes(4 * count, what))

    def skip(self, nbytes: int, what: str) -> int:
        """Skip `nbytes` bytes and return their offset."""
        self.need(nbytes, what)
        self.at += nbytes
        return self.at - nbytes
