"""Output: what a command says, as text for people or as one JSON object."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.errors import Error, printable

if TYPE_CHECKING:
    from ..runtime.graph import Note

SCHEMA = 1


class Output:
    """Where a command's words go.

    Attributes:
        command: its name, part of the JSON schema's name.
        json: whether standard output gets one JSON object instead of text.
        quiet: whether text is left out.
        resume_hint: the command that goes on where this one is interrupted.
        complete: whether its output has its name already.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self, command: str = "convert", *, json: bool = False) -> None:
        """Begin a command. What a terminal's encoding lacks is shown as an escape, never as an error."""
        self.command = command
        self.json = json
        self.quiet = False
        self.resume_hint: str | None = None
        self.complete = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def say(self, text: str = "") -> None:
        """A line for people; control characters of the text should have been made visible with `printable`."""
        if not self.json and not self.quiet:
            print(text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> None:
        """Rows under columns, those whose number is in `right` flushed right."""
        if not self.json and not self.quiet:
            for line in aligned(columns, rows, right):
                print(line)

    def warn(self, notes: Iterable[Note]) -> None:
        """Notes on standard error, unless they go into the JSON object."""
        if not self.json and not self.quiet:
            for note in notes:
                subject = f"{printable(note.tensor)}: " if note.tensor is not None else ""
                print(f"! {note.code}  {subject}{printable(note.message)}", file=sys.stderr)

    def emit(self, payload: dict[str, Any], *, ok: bool = True) -> None:
        """The command's JSON object, in JSON mode."""
        if self.json:
            plain = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
            print(json.dumps({"schema": f"candle-convert/{self.command}/{SCHEMA}", "ok": ok, **payload}, ensure_ascii=plain))

    def fail(self, error: Error) -> None:
        """One line on standard error; in JSON mode the error object."""
        self.emit({"error": error.to_json()}, ok=False)
        if not self.json:
            print(f"✗ {error}", file=sys.stderr)

    def refuse(self, message: str, show: Callable[[], None]) -> None:
        """A command line that cannot be understood: `show` says so to people."""
        if self.json:
            self.emit({"error": {"code": "E-USAGE", "message": message, "hint": "See --help"}}, ok=False)
        else:
            show()

    def interrupted(self) -> None:
        """Say what there is of the output, and how to go on."""
        message = f"interrupted, the output is {'complete' if self.complete else 'untouched'}"
        hint = None if self.complete else self.resume_hint
        self.emit({"error": {"code": "E-INTERRUPTED", "message": message, "hint": hint}}, ok=False)
        if not self.json:
            print(f"✗ {message}{f'; to go on: {hint}' if hint else ''}", file=sys.stderr)

    def bug(self, what: str, report: str) -> None:
        """Say that this is our fault and where the details are."""
        self.emit({"error": {"code": "E-BUG", "message": what, "hint": f"Please report it with {report}"}}, ok=False)
        if not self.json:
            print(f"✗ E-BUG  {printable(what)}. This is a bug of candle-convert; please report it with {report}", file=sys.stderr)


_current = Output()


def current() -> Output:
    """The output of the command that runs in this process."""
    return _current


def aligned(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> list[str]:
    """Rows under columns as lines of text, with control characters made visible."""
    lines = [list(columns), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    places = [str.rjust if column in right else str.ljust for column in range(len(columns))]
    return ["  ".join(place(cell, width) for place, cell, width in zip(places, line, widths, strict=True)).rstrip() for line in lines]


def notes_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Notes as the ``warnings`` of JSON mode."""
    return [{"code": note.code, "tensor": note.tensor, "message": note.message} for note in notes]


def human_size(nbytes: float) -> str:
    """``2.05 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} TiB"
