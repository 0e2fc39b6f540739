"""Source: an input file read by position; a file that shrinks raises an error instead of SIGBUS."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..base.errors import Error, FileAccessError, FormatError, UnsafeFileError
from ..base.limits import Budget, current
from ..base.system_error import read_error
from ..base.units import counted

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Source:
    """One regular file, open for reading. Its size is what fstat said at the opening."""

    _start = 0
    """Offset of the bytes in the open file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            self.fd = os.open(self.path, _FLAGS)
        except OSError as error:
            raise _unreachable(self.path, error) from error
        except ValueError as error:
            raise FileAccessError(
                "E-IO-OPEN", self.path, "no file can have this name, which holds a NUL character"
            ) from error
        self._open = True
        status = os.fstat(self.fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            why = f"is {_kind(status.st_mode)}, not a regular file"
            raise FileAccessError("E-IO-KIND", self.path, why, hint="Use a file or a model directory")
        self.size = status.st_size
        self.identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self.budget = Budget(self.path, current())
        self._map: memoryview | None = None

    @property
    def directory(self) -> Path:
        """The folder that relative names inside this file refer to."""
        return Path(self.path).parent

    def read(self, offset: int, nbytes: int) -> bytes:
        """Exactly `nbytes` bytes from `offset`; FormatError when the file ends before."""
        self._need(offset, nbytes)
        parts = []
        while nbytes:
            part = os.pread(self.fd, min(nbytes, 1 << 30), self._start + offset)
            if not part:
                raise self._shrank(offset)
            parts.append(part)
            offset += len(part)
            nbytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset`."""
        self._need(offset, len(buffer))
        done = 0
        while done < len(buffer):
            count = os.preadv(self.fd, [buffer[done : done + (1 << 30)]], self._start + offset + done)
            if not count:
                raise self._shrank(offset + done)
            done += count

    def mapped(self) -> memoryview:
        """The whole file as memory that the system fills when it is looked at, shared with all who map it; read-only.

        Only for weights that a model runs from: a file that is cut short while it is looked at ends the process.
        """
        if os.fstat(self.fd).st_size != self.size:
            raise self._shrank(0)
        if self._map is None:
            self._map = memoryview(mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ))
        return self._map

    def written(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges between `start` and `stop` that are not holes, of a file that is sparse; all of it where the system
        does not tell."""
        while start < stop:
            first, last = self._extent(start, stop)
            if first < last:
                yield first, last
            start = last

    def _extent(self, start: int, stop: int) -> tuple[int, int]:
        """The next range at or after `start` that is not a hole; (stop, stop) if only holes follow."""
        if not hasattr(os, "SEEK_DATA"):
            return start, stop
        try:
            first = os.lseek(self.fd, self._start + start, os.SEEK_DATA) - self._start
            last = os.lseek(self.fd, self._start + first, os.SEEK_HOLE) - self._start
        except OSError as error:
            return (stop, stop) if error.errno == errno.ENXIO else (start, stop)
        first = min(max(first, start), stop)
        return first, min(max(last, first + 1), stop)

    def head(self, nbytes: int) -> bytes:
        """The first `nbytes` bytes, fewer when the file is shorter."""
        return self.read(0, min(nbytes, self.size))

    def close(self) -> None:
        """Close the file; reading afterwards is an error of ours."""
        if self._open:
            self._open = False
            os.close(self.fd)

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

    def _need(self, offset: int, nbytes: int) -> None:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            why = f"{counted(nbytes, 'byte', verb='is')} needed here, {max(0, self.size - offset):,} are left"
            hint = "The file is cut short; download or copy it again"
            raise FormatError("E-IO-TRUNCATED", self.path, why, at=max(0, offset), hint=hint)

    def check_unchanged(self) -> None:
        """FileAccessError where something has been written into the file since it was opened, so that other numbers
        would come out of it."""
        status = os.fstat(self.fd)
        if status.st_mtime_ns != self.identity[-1] and status.st_size >= self.size:
            hint = "Open it again; write new files under another name and rename them, as candle-convert does"
            raise FileAccessError("E-IO-CHANGED", self.path, "the file was written to after it was opened", hint=hint)

    def _shrank(self, offset: int) -> FileAccessError:
        why = f"the file became shorter while it was read (it had {counted(self.size, 'byte')})"
        return FileAccessError("E-IO-SHRANK", self.path, why, at=offset)


def contained(root: Path, name: str, named_in: str) -> Path:
    """The path of `name`, a relative name that the file `named_in` gives, refused when it leads out of `root`.

    A link is followed inside `root`, or inside the same Hugging Face cache repository
    (``snapshots/REV/x -> ../../blobs/HASH``).
    """

    def refuse(why: str) -> UnsafeFileError:
        return UnsafeFileError(
            "E-PATH-ESCAPE", named_in, f"names the file {name!r}, {why}", hint="Only files beside it are opened"
        )

    parts = name.replace("\\", "/").split("/")
    if not name or "\0" in name or name.startswith(("/", "\\", "~")) or ".." in parts or ":" in parts[0]:
        raise refuse("which is not a plain relative path")
    path = root / name
    resolved, base = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if resolved.is_relative_to(base):
        return path
    for folder in (base, *base.parents):
        if folder.parent.name == "snapshots" and resolved.is_relative_to(folder.parent.parent / "blobs"):
            return path
    raise refuse("which is a link to somewhere else")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    )
    return next((name for test, name in kinds if test(mode)), "a socket")


def _unreachable(path: str, error: OSError) -> Error:
    if isinstance(error, FileNotFoundError):
        return FileAccessError("E-IO-MISSING", path, "no such file or directory")
    return read_error(path, error, "E-IO-OPEN", "opened")
