"""Atomic replacement of small files: a file appears under its name only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...formats.containers.whole_file import whole_file
from ...runtime.base.errors import FileAccessError, UnsafeFileError
from ...runtime.base.system_error import mode_of, refuse_special, write_error
from .stdio import STREAM, standard_output

PREFIX = ".candle-convert-"
"""Of the file that is written: its name fits where that of the output does."""
MAX_NAME = 255
"""Bytes of a file name on the file systems of Linux."""
DIGEST = 16
"""Hexadecimal digits that tell shortened names apart."""


def short_name(name: str, room: int) -> str:
    """`name`, or its start and a digest of the whole where it and `room` more bytes are too long for a file name."""
    most = MAX_NAME - room
    encoded = os.fsencode(name)
    if len(encoded) <= most:
        return name
    start = encoded[: most - DIGEST - 1].decode("utf-8", "ignore")
    return f"{start}-{hashlib.sha256(encoded).hexdigest()[:DIGEST]}"


def refuse_existing(path: str | os.PathLike[str], *, force: bool) -> None:
    """UnsafeFileError where `path` exists, be it a link that leads nowhere, and `force` is not given; for before long
    work.

    With `force` a link is replaced itself, and what it points to stays. Devices and pipes are written into.
    """
    if _is_device(path):
        return
    if os.fspath(path) != STREAM and os.path.lexists(path) and not force:
        link = os.readlink(path) if os.path.islink(path) else None
        what = "already exists" if link is None else f"already exists, as a link to {link!r}"
        raise UnsafeFileError("E-OUT-EXISTS", path, what, hint="Use --force (force=True in Python) to replace it")


def refuse_unwritable(folder: str | os.PathLike[str]) -> None:
    """FileAccessError where no file can be written to a folder, or the folder cannot be made; for before long work."""
    place = Path(folder)
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        why = "is not a folder" if not place.is_dir() else "permission denied"
        raise FileAccessError("E-OUT-WRITE", folder, f"cannot be written: {place}: {why}")


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Make a folder and those that it is in; FileAccessError where that is not possible."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, force: bool) -> Iterator[IO[bytes]]:
    """A file to write to, renamed to `path` at the end of the block; on any error nothing is left of it. ``-`` is
    standard output; a device or pipe gets the content at the end.

    Raises:
        UnsafeFileError: `path` exists and `force` is not given.
        FileAccessError: it cannot be written.
    """
    if os.fspath(path) == STREAM:
        yield from standard_output()
        return
    target = Path(path)
    refuse_existing(target, force=force)
    if not _is_device(target):
        refuse_special(target)
    try:
        if _is_device(target):
            held = io.BytesIO()
            yield held
            with open(target, "wb") as device:
                device.write(held.getvalue())
            return
        with whole_file(target, PREFIX) as file:
            yield file
    except OSError as error:
        raise write_error(target, error) from error


def _is_device(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a character device or a pipe, which a file must not replace."""
    mode = mode_of(path)
    return mode is not None and (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode))
