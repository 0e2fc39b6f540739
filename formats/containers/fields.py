"""Binary fields in the order of the file, each checked against the bytes that are left before it is read."""

from __future__ import annotations

import struct

from ...runtime.errors import FormatError
from ...runtime.source import Source

WINDOW = 1 << 13
"""Bytes that are read at once, so that small fields do not cost a system call each."""


class Fields:
    """A position in a source.

    Attributes:
        code: error code for a file that ends too early.
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
        """Bytes between the position and the end of the file."""
        return self.source.size - self.at

    def need(self, nbytes: int, what: str) -> None:
        """Raise FormatError when fewer than `nbytes` bytes are left."""
        if nbytes > self.left:
            raise FormatError(
                self.code, self.source.path, f"{nbytes - self.left:,} bytes are missing: {what} needs {nbytes:,}, {self.left:,} are left", at=self.at,
                hint="The download is cut short or the file is damaged; fetch it again",
            )

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
        """Pass over `nbytes` bytes that stay in the file; their offset."""
        self.need(nbytes, what)
        self.at += nbytes
        return self.at - nbytes
