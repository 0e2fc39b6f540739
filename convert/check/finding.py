"""Findings of `check` and `scan`, and the exit code that follows from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, UnsafeFileError
from ...runtime.base.units import counted
from ...runtime.contract.format import Finding
from ...runtime.tensor.file import Source
from ..console.output import aligned

SEVERITIES = ("danger", "error", "warning", "info")
UNCOUNTED = {"info": "info"}
"""Severities without a plural."""
COLUMNS = ("severity", "code", "byte", "file", "member", "finding")


@dataclass(frozen=True)
class Located:
    """A finding and where it was found.

    Attributes:
        path: the file.
        code: stable identifier.
        severity: danger (could run code or reach other files), error (the file is broken), warning, or info.
        message: one sentence.
        offset: byte in the file or in its member.
        member: archive member, tensor or metadata key.
        exit_code: what an error or a danger makes a command exit with.
    """

    path: str
    code: str
    severity: str
    message: str
    offset: int | None = None
    member: str | None = None
    exit_code: int = 0

    @staticmethod
    def of(path: str, finding: Finding) -> Located:
        """A format's finding in the file `path`."""
        return Located(path, finding.code, finding.severity, finding.message, finding.offset, finding.member)

    @staticmethod
    def of_error(path: str, error: Error) -> Located:
        """An error that ended the reading of `path`: a danger when it was refused for safety."""
        severity = "danger" if isinstance(error, UnsafeFileError) else "error"
        member = None if error.file in (None, path) else str(error.file).removeprefix(f"{path}!")
        hint = f". {error.hint}" if error.hint else ""
        sides = [
            f"{side} {value}"
            for side, value in (("expected", error.expected), ("found", error.found))
            if value is not None
        ]
        why = f"{error.why} ({', '.join(sides)})" if sides else error.why
        return Located(path, error.code, severity, why + hint, error.offset, member, error.exit_code)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "exit_code"}


def table(found: Iterable[Located]) -> str:
    """Findings as aligned text, the worst first."""
    rows = sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
    cells = [
        (
            row.severity,
            row.code,
            "" if row.offset is None else f"{row.offset:,}",
            row.path,
            row.member or "",
            row.message,
        )
        for row in rows
    ]
    return "\n".join(aligned(COLUMNS, cells, right=(2,), prose=(5,))) if rows else ""


def counts(found: Iterable[Located]) -> str:
    """``2 errors, 1 warning``, "nothing found" when there is nothing."""
    numbers = dict.fromkeys(SEVERITIES, 0)
    for finding in found:
        numbers[finding.severity] += 1
    words = [counted(number, severity, UNCOUNTED.get(severity)) for severity, number in numbers.items() if number]
    return ", ".join(words) or "nothing found"


class WatchedSource(Source):
    """A source that tells `advance` about every byte that is read from it."""

    def __init__(self, path: str, advance: Callable[[int], object]) -> None:
        super().__init__(path)
        self._advance = advance

    def read(self, offset: int, nbytes: int) -> bytes:
        data = super().read(offset, nbytes)
        self._advance(nbytes)
        return data

    def read_into(self, offset: int, buffer: memoryview) -> None:
        super().read_into(offset, buffer)
        self._advance(len(buffer))
