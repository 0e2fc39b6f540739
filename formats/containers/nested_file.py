"""Nested files: a byte range of an open file, or its decompressed content, read as a source named ``OUTER!MEMBER``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

from ...runtime.base.errors import FileAccessError
from ...runtime.tensor.file import Source
from .spool import spool_error


class Inner(Source):
    """Bytes `start` to `start + nbytes` of `outer`, or of the unlinked file `fd`. The budget is the outermost
    file's."""

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


def spool(outer: Source, member: str, pieces: Iterable[bytes | memoryview]) -> Inner:
    """Sequential `pieces` spooled to an unlinked temporary file, as a source with random access.

    Raises LimitError if the disk is full, and whatever `pieces` raises.
    """
    try:
        with tempfile.TemporaryFile(prefix="candle-convert-") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            return Inner(outer, member, 0, file.tell(), file.fileno())
    except OSError as error:
        raise spool_error(error) from error
