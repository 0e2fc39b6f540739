"""Spools: sequential streams copied once to a temporary file for random access."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import IO

from ...runtime.base.errors import FileAccessError
from ...runtime.base.units import counted
from ...runtime.tensor.storage import Stream

CHUNK = 1 << 20


class Spool:
    """A stream, inflated at the first read into an unlinked file that is freed with the storage."""

    step = 1
    sequential = False
    key = None

    def __init__(self, stream: Stream) -> None:
        self.nbytes = stream.nbytes
        self._stream = stream
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> bytes:
        with self._lock:
            if self._file is None:
                self._file = self._filled()
        parts = []
        while start < stop and (part := os.pread(self._file.fileno(), stop - start, start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _filled(self) -> IO[bytes]:
        try:
            file = tempfile.TemporaryFile(prefix="candle-convert-")  # noqa: SIM115 (held as long as the storage)
            for start in range(0, self.nbytes, CHUNK):
                file.write(self._stream.read(start, min(self.nbytes, start + CHUNK)))
            file.flush()
        except OSError as error:
            why = f"{counted(self.nbytes, 'byte')} cannot be spooled: {error.strerror}"
            raise FileAccessError(
                "E-SPOOL", tempfile.gettempdir(), why, hint="Set TMPDIR to a folder with more free space"
            ) from error
        return file
