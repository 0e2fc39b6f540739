"""Files of a command line: as they are named, in folders, and those that patterns match."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence, Set
from pathlib import Path

from ...runtime.base.errors import FileAccessError, UsageError
from ..console.stdio import STREAM


def files_of(
    given: Sequence[str], suffixes: Set[str], code: str, what: str, *, allow_stream: bool = False
) -> list[str]:
    """The paths: files as they are, of folders the files with one of the suffixes, and the files that patterns match.

    Args:
        given: paths and patterns.
        suffixes: in small letters, with the dot.
        code: of the error for a folder without such files.
        what: they are, in the plural.
        allow_stream: whether ``-`` stays as it is.

    Raises UsageError for a folder without such files, FileAccessError for a path or pattern that leads to nothing.
    """
    found: list[str] = []
    for each in given:
        if os.path.isdir(each):
            inside = [str(path) for path in sorted(Path(each).iterdir()) if path.suffix.lower() in suffixes]
            if not inside:
                hint = f"Looked for {', '.join(sorted(suffixes))}"
                raise UsageError(code, each, f"the folder holds no {what}", hint=hint)
            found += inside
        elif os.path.exists(each) or (allow_stream and each == STREAM):
            found.append(each)
        else:
            matches = sorted(path for path in glob.iglob(each, recursive=True) if os.path.isfile(path))
            if not matches:
                raise FileAccessError("E-IO-OPEN", each, f"no such file, folder or pattern of {what}")
            found += matches
    return found
