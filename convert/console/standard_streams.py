"""Standard streams that are closed, full or have no reader: an output error is exit 7, a lost reader ends silently.

Python meets such errors where a buffer is flushed, often after the last line of the program. These streams keep the
first error, which `failed` returns at the end of a command, and drop what is written after it.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any

from ...runtime.base.errors import FileAccessError

CODE = "E-IO-STREAM"
READER_LEFT = 141
"""The exit code of a program that SIGPIPE ends."""


class OutputError(Exception):
    """Standard output cannot be written. It is none of our errors, lest it be taken for that of a file."""

    exit_code = FileAccessError.exit_code


class ReaderLeft(OutputError):
    """The program that read standard output has ended: other tools say nothing either."""

    exit_code = READER_LEFT


class _Stream(io.RawIOBase):
    """The file of a standard stream, with the first error that writing it met."""

    def __init__(self, raw: io.RawIOBase, owner: object = None) -> None:
        self._raw = raw
        self._owner = owner  # closes the file when it is collected
        self.error: OutputError | None = None

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


class _Input(_Stream):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                count: int | None = self._raw.readinto(buffer)
            except OSError as error:
                why = f"standard input cannot be read: {os.strerror(error.errno or 0).lower()}"
                raise FileAccessError(CODE, None, why, hint="Redirect it from a file or a pipe") from error
            if count is not None:
                return count
            select.select([self], [], [])


class _Output(_Stream):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write all of `data`, also to unbuffered streams and non-blocking pipes, which take a part at a time."""
        left = memoryview(data).cast("B")
        size = left.nbytes
        while left.nbytes and self.error is None:
            try:
                count = self._raw.write(left)
            except OSError as error:
                self.error = _output_error(error)
                raise self.error from error
            if count is None:
                select.select([], [self], [])
            left = left[count or 0 :]
        return size


class _Messages(_Output):
    """Standard error; writes that fail are dropped, as there is nowhere to report them."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OutputError:
            return memoryview(data).nbytes


def guard() -> None:
    """Replace Python's standard streams by guarded ones. The descriptor of a closed stream is taken, so that no file
    that is opened later gets it, and what is printed with it."""
    sys.stdin = _guarded(sys.stdin, 0, _Input, io.BufferedReader)
    sys.stdout = _guarded(sys.stdout, 1, _Output, io.BufferedWriter)
    sys.stderr = _guarded(sys.stderr, 2, _Messages, io.BufferedWriter)


def failed() -> OutputError | None:
    """The error of standard output in this process, after its buffer is written; None if there was none."""
    try:
        sys.stdout.flush()
    except OutputError as error:
        return error
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw.error if isinstance(raw, _Output) else None


def _guarded(stream: Any, number: int, kind: type[_Stream], buffered: Any) -> Any:
    if stream is None:
        return io.TextIOWrapper(buffered(kind(_placeholder(number))), encoding="utf-8", errors="backslashreplace")
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, io.RawIOBase):  # another program's stream
        return stream
    file = kind(raw, stream)
    return io.TextIOWrapper(
        file if raw is buffer else buffered(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _placeholder(number: int) -> io.FileIO:
    """A file in place of a closed stream, whose descriptor can only be used the other way round."""
    opened = os.open(os.devnull, os.O_WRONLY if number == 0 else os.O_RDONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
    return io.FileIO(number, "r" if number == 0 else "w", closefd=False)


def _output_error(error: OSError) -> OutputError:
    if error.errno == errno.EPIPE:
        return ReaderLeft("nobody reads standard output")
    why = f"standard output cannot be written: {os.strerror(error.errno or 0).lower()}"
    return OutputError(f"{CODE}  {why}. Redirect it to a file, or check the disk")
