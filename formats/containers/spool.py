"""Spools: sequential streams copied once to a temporary file for random access."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import IO

from ...runtime.base.errors import Error
from ...runtime.base.system_error import write_error
from ...runtime.tensor.storage import Stream

CHUNK = 1 << 20


def spool_error(error: OSError) -> Error:
    """The error for a stream that could not be written to the folder of temporary files."""
    return write_error(tempfile.gettempdir(), error, hint="Set TMPDIR to a folder with more free space")


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
            raise spool_error(error) from error
        return file
