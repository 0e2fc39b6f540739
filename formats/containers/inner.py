"""Inner sources: a range of an open file, or what a part of it unpacks to, read as a file of its own under the name ``OUTER!MEMBER``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

from ...runtime.errors import FileAccessError
from ...runtime.source import Source


class Inner(Source):
    """Bytes `start` to `start + nbytes` of `outer`, or of the nameless file `fd`. The budget is that of the outermost file."""

    def __init__(self, outer: Source, member: str, start: int, nbytes: int, fd: int | None = None) -> None:
        self.path = f"{outer.path}!{member}"
        self.fd = os.dup(outer.fd if fd is None else fd)
        self._open = True
        self._start = start + (outer._start if fd is None else 0)
        self.size = nbytes
        status = os.fstat(self.fd)
        self.identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self.budget = outer.budget
        self._map = None

    def mapped(self) -> memoryview:
        raise FileAccessError("E-IO-KIND", self.path, "lies within another file and cannot be mapped")


def put_aside(outer: Source, member: str, pieces: Iterable[bytes | memoryview]) -> Inner:
    """`pieces` that come in order, as a source that can be read in any order, from a file that has no name.

    Raises FileAccessError where there is no room for it, and what `pieces` raises.
    """
    try:
        with tempfile.TemporaryFile(prefix="candle-convert-") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            return Inner(outer, member, 0, file.tell(), file.fileno())
    except OSError as error:
        why = f"the unpacked file cannot be put aside: {error.strerror}"
        raise FileAccessError("E-SPOOL", tempfile.gettempdir(), why, hint="Set TMPDIR to a folder with more room") from error
