"""Errors of the operating system as errors of ours: full disks, too many open files, files that cannot be reached."""

from __future__ import annotations

import errno
import os
import stat

from .errors import Error, FileAccessError, LimitError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FILES = (errno.EMFILE, errno.ENFILE)
TOO_MANY = "too many open files"


def system_error(error: BaseException) -> Error | None:
    """The error for one that the operating system raised where nobody expected it; None for any other."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, Error):
            return None
        loading = isinstance(cause, ImportError) and TOO_MANY in str(cause).lower()
        if loading or getattr(cause, "errno", None) in FILES:
            return _too_many_files()
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if isinstance(error, FileNotFoundError) and error.filename is None and "temporary directory" in str(error):
        why = "no folder for temporary files can be written"
        return FileAccessError("E-IO-TEMPORARY", None, why, hint="Set TMPDIR to a folder that can be written")
    if isinstance(error, FileNotFoundError) and error.filename is None and not _is_in_a_folder():
        why = "the working folder has been deleted"
        return FileAccessError("E-IO", None, why, hint="Change to a folder that exists, or name paths from the root")
    file = error.filename if isinstance(error.filename, str | bytes) else None
    if error.errno in FULL:
        return write_error(file, error)
    return FileAccessError("E-IO", None if file is None else os.fsdecode(file), reason(error))


def write_error(file: str | os.PathLike[str] | bytes | None, error: OSError, hint: str = "Free some space") -> Error:
    """The error for an output that could not be written."""
    path = os.fsdecode(file) if isinstance(file, bytes) else file
    if error.errno in FULL:
        return LimitError("E-OUT-FULL", path, f"the disk is full: {reason(error)}", hint=hint)
    if error.errno in FILES:
        return _too_many_files()
    why = reason(error)
    if isinstance(error, FileExistsError) and error.filename is not None:  # of a folder that was to be made
        why = f"{os.fsdecode(error.filename)} is not a directory"
    return FileAccessError("E-OUT-WRITE", path, f"cannot be written: {why}")


def read_error(path: str | os.PathLike[str], error: OSError, code: str = "E-IO-READ", verb: str = "read") -> Error:
    """The error for a file or folder that could not be read, opened or listed."""
    if error.errno in FILES:
        return _too_many_files()
    return FileAccessError(code, path, f"cannot be {verb}: {reason(error)}")


def refuse_special(path: str | os.PathLike[str]) -> None:
    """FileAccessError where a file cannot replace what `path` leads to: a folder, or a device, which would be gone."""
    mode = mode_of(path)
    if mode is not None and not stat.S_ISREG(mode):
        what = "directory" if stat.S_ISDIR(mode) else "device, pipe or socket"
        hint = "Name another file"
        raise FileAccessError("E-OUT-KIND", path, f"is a {what}, a file is to be written here", hint=hint)


def mode_of(path: str | os.PathLike[str]) -> int | None:
    """The mode of what a path leads to; None where that is nothing."""
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return None


def reason(error: OSError) -> str:
    """The operating system's message, in one line."""
    return error.strerror or str(error) or type(error).__name__


def _is_in_a_folder() -> bool:
    """Whether the working folder of the process exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _too_many_files() -> LimitError:
    try:
        import resource
    except ImportError:  # Windows
        allowed = ""
    else:
        allowed = f": this process may open {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}"
    return LimitError("E-FILES", None, f"{TOO_MANY}{allowed}", hint="Raise the limit with ulimit -n 1024")
