"""Directory walk: the files at and below given paths, without following links out of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...runtime.base import limits
from ...runtime.base.errors import Error, FileAccessError
from ...runtime.base.limits import Budget
from ...runtime.base.system_error import read_error
from ...runtime.tensor.file import contained


def files(path: Path) -> Iterator[tuple[Path, Error | None]]:
    """Every file at or below `path`, in a stable order, each with the error that keeps it from being read, or None.

    Links are followed to files inside the folder (or the same hub cache); links to folders are not followed, since what
    they point to is walked where it stands. Links that lead out come with an error.

    Raises:
        FileAccessError: a path does not exist.
        LimitError: there are more entries than the limit.
    """
    if not path.is_dir():
        yield (
            path,
            None if os.path.lexists(path) else FileAccessError("E-IO-MISSING", path, "no such file or directory"),
        )
        return
    budget = Budget(str(path), limits.current())
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield folder, read_error(folder, error, "E-IO-OPEN", "listed")
            continue
        budget.entry(len(entries) + 1, "files")
        pending += [Path(entry.path) for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        for entry in entries:
            if entry.is_symlink():
                escape = _outside(path, Path(entry.path))
                if escape is not None or not os.path.isdir(entry.path):
                    yield Path(entry.path), escape
            elif not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path), None


def _outside(root: Path, link: Path) -> Error | None:
    try:
        contained(root, str(link.relative_to(root)), str(link))
    except Error as error:
        return error
    except (OSError, RuntimeError) as error:  # a loop of links
        return FileAccessError("E-IO-LINK", link, f"is a broken link: {error}")
    return None
