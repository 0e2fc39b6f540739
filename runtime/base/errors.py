"""Errors with a stable code: one line for the user, fields for programs.

Every error that this package raises on purpose derives from `Error`. `code` is stable across releases, `exit_code` is
what the command line exits with, `offset` is a byte position in `file`.
"""

from __future__ import annotations

import os
from typing import Any

from .printable import printable as printable


class Error(Exception):
    """Base of all errors; the subclass decides the exit code.

    Args:
        code: stable identifier such as ``E-ST-OVERLAP``.
        file: path of the file at fault, or None.
        why: one sentence, without the path.
        at: byte offset in `file` where the fault was found.
        expected, found: the two sides of a mismatch, where there is one.
        hint: what to do next; None for what usually helps with errors of this kind.

    Attributes:
        node: of a graph, where computing it failed.
    """

    exit_code = 70
    usual_hint: str | None = None
    node: str | None = None

    def __init__(
        self,
        code: str,
        file: str | os.PathLike[str] | None,
        why: str,
        *,
        at: int | None = None,
        expected: Any = None,
        found: Any = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(code, file, why)
        self.code = code
        self.file = None if file is None else os.fspath(file)
        self.why = why
        self.offset = at
        self.expected = expected
        self.found = found
        self.hint = self.usual_hint if hint is None else hint

    @property
    def message(self) -> str:
        """The sentence with position and mismatch, without code and hint."""
        where = [] if self.file is None else [printable(self.file)]
        if self.offset is not None:
            where.append(f"byte {self.offset:,}")
        text = ": ".join([*where, printable(self.why)])
        sides = [
            f"{side} {printable(str(value))}"
            for side, value in (("expected", self.expected), ("found", self.found))
            if value is not None
        ]
        return f"{text} ({', '.join(sides)})" if sides else text

    def __str__(self) -> str:
        text = f"{self.code}  {self.message}"
        return f"{text}. {printable(self.hint)}" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        """The error object of JSON mode."""
        return {
            "code": self.code,
            "message": self.message,
            "file": self.file,
            "offset": self.offset,
            "expected": None if self.expected is None else str(self.expected),
            "found": None if self.found is None else str(self.found),
            "hint": self.hint,
        }


class UsageError(Error, RuntimeError):
    """The request itself makes no sense: unknown option value, no such tensor.

    It is a RuntimeError, because scripts of PyTorch expect one where they ask tensors for what makes no sense; and an
    IndexError, KeyError, TypeError or ValueError too where they expect that, by the code.
    """

    exit_code = 2

    def __new__(cls, code: str, *arguments: Any, **options: Any) -> UsageError:
        """An error of the kind that belongs to the code."""
        return super().__new__(_KINDS.get(code, cls) if cls is UsageError else cls, code)


class UsageIndexError(UsageError, IndexError):
    """A dim, index or class that does not exist."""


class UsageKeyError(UsageError, KeyError):
    """A name that does not exist, or that is taken."""


class UsageTypeError(UsageError, TypeError):
    """Something of the wrong type."""


class UsageValueError(UsageError, ValueError):
    """A setting out of range, or values that do not belong together."""


_KINDS: dict[str, type[UsageError]] = {
    "E-TENSOR-DIM": UsageIndexError,
    "E-DATA-COLLATE": UsageTypeError,
    "E-NN-MODULE": UsageTypeError,
    "E-TENSOR-DATA": UsageTypeError,
    "E-DATA-LENGTH": UsageValueError,
    "E-NN-SHAPE": UsageValueError,
    "E-NN-VALUE": UsageValueError,
    "E-OPTIM-OPTION": UsageValueError,
    "E-OPTIM-PARAMS": UsageValueError,
    "E-OPTIM-SCHEDULE": UsageValueError,
    "E-OPTIM-STATE": UsageValueError,
    "E-OPTION": UsageValueError,
}
"""Codes of usage errors -> the error class that PyTorch raises for them."""


class FormatError(Error):
    """The file breaks its own format, or is not what its name says."""

    exit_code = 3
    usual_hint = "The file is damaged, cut short, or was written by a faulty program; fetch or save it again"


class UnsupportedError(Error):
    """A well-formed thing that cannot be read, held or run: a dtype, an op, an architecture."""

    exit_code = 4
    usual_hint = "candle-convert formats and candle-convert types list what is supported"


class UnsafeFileError(Error):
    """Refused for safety: code in a pickle, a path that escapes, an output that exists."""

    exit_code = 5


class LimitError(Error):
    """A budget of bytes, seconds, depth or entries is used up, or the disk is full."""

    exit_code = 6


class FileAccessError(Error):
    """The file or the network could not be reached, read or written."""

    exit_code = 7
    usual_hint = "Check the path, its permissions and the disk"
