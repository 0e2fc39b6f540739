"""Output of a command: text for people, or one JSON object."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

from ...runtime.base.errors import Error
from ...runtime.base.printable import printable, printable_json, printable_lines, without_controls
from ...runtime.base.units import human_size as human_size
from .status_line import busy
from .table import aligned as aligned

if TYPE_CHECKING:
    from ...runtime.ir.graph import Note

SCHEMA = 1
WARNING, FAILURE, EVENT = "33", "31", "2"
"""Parameters of the terminal's SGR sequence."""


def colored(text: str, style: str, stream: IO[str]) -> str:
    """A line in a color, where `stream` is a terminal that shows colors; unchanged in pipes and with NO_COLOR."""
    if not style or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


CLEAR_SCREEN = "\x1b[2J\x1b[H"


class Output:
    """Output of a command: text for people, or one JSON object; warnings and errors on standard error.

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

    def resumes(self) -> None:
        """From now on this command goes on where it is interrupted if ``--resume`` is added."""
        words = [word for word in sys.argv[1:] if word != "--resume"]
        self.resume_hint = shlex.join(["candle-convert", *words, "--resume"])

    def say(self, text: str = "") -> None:
        """One line for people, with line breaks and control characters made visible."""
        if not self.json and not self.quiet:
            busy().clear()
            print(printable(text))

    def lines(self, text: str) -> None:
        """Lines for people, of which none begins within a name: those of a table or of a script of ours."""
        for line in text.split("\n"):
            self.say(line)

    def content(self, text: str, end: str = "\n", *, exact: bool = False) -> None:
        """Text that the user asked for, of many lines. In a pipe control characters are escaped, unless the text has to
        be `exact`; on a terminal everything is escaped that it would not merely show."""
        if not self.json and not self.quiet:
            busy().clear()
            shown = printable_lines(text) if sys.stdout.isatty() else text if exact else without_controls(text)
            print(shown, end=end, flush=True)

    def note(self, text: str, style: str = "") -> None:
        """One line on standard error, apart from what was asked for; `style` is its color on a terminal."""
        if not self.json and not self.quiet:
            busy().clear()
            print(colored(printable(text), style, sys.stderr), file=sys.stderr)

    def picture(self, text: str) -> None:
        """The escape sequences of a picture in place of what a terminal shows; nothing without a terminal."""
        if not self.json and not self.quiet and sys.stderr.isatty():
            busy().clear()
            print(f"{CLEAR_SCREEN}{text}", file=sys.stderr, flush=True)

    def next_step(self, *words: str) -> None:
        """The command that uses the result, on standard error."""
        self.note(f" next     {shlex.join(['candle-convert', *words])}", EVENT)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        right: Sequence[int] = (),
        prose: Sequence[int] = (),
        optional: Sequence[int] = (),
        width: int | None = None,
    ) -> None:
        """Rows under columns, as `table.aligned` has them."""
        for line in aligned(columns, rows, right, prose, optional, width):
            self.say(line)

    def warn(self, notes: Iterable[Note]) -> None:
        """Notes on standard error, unless they go into the JSON object: warnings with a mark, events as plain lines."""
        for note in notes:
            text = f"{'' if note.tensor is None else f'{note.tensor}: '}{note.message}"
            if note.event:
                self.note(f" note     {text}", EVENT)
            else:
                self.note(f"! {note.code}  {text}", WARNING)

    def emit(self, payload: dict[str, Any], *, ok: bool = True) -> None:
        """The command's JSON object, in JSON mode."""
        if self.json:
            plain = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
            print(
                printable_json(
                    {"schema": f"candle-convert/{self.command}/{SCHEMA}", "ok": ok, **payload}, ascii_only=plain
                )
            )

    def fail(self, error: Error) -> None:
        """One line on standard error; in JSON mode the error object."""
        self.emit({"error": error.to_json()}, ok=False)
        if not self.json:
            self.complain(str(error))

    def complain(self, text: str) -> None:
        """A line on standard error about what went wrong, in quiet mode too."""
        busy().clear()
        print(colored(f"✗ {printable(text)}", FAILURE, sys.stderr), file=sys.stderr)

    def refuse(self, message: str, show: Callable[[IO[str]], None], hint: str | None = None) -> None:
        """A command line that cannot be parsed: `show` writes the message for people, the hint follows it."""
        if self.json:
            self.emit({"error": {"code": "E-USAGE", "message": message, "hint": hint or "See --help"}}, ok=False)
        else:
            busy().clear()
            shown = io.StringIO()
            show(shown)
            print("\n".join(map(printable, shown.getvalue().rstrip("\n").split("\n"))), file=sys.stderr)
            if hint is not None:
                print(printable(hint), file=sys.stderr)

    def interrupted(self) -> None:
        """Say what there is of the output, and how to go on."""
        message = f"interrupted, the output is {'complete' if self.complete else 'untouched'}"
        hint = None if self.complete else self.resume_hint
        self.emit({"error": {"code": "E-INTERRUPTED", "message": message, "hint": hint}}, ok=False)
        if not self.json:
            self.complain(f"{message}{f'; to continue: {hint}' if hint else ''}")

    def bug(self, what: str, report: str) -> None:
        """Say that this is our fault and where the details are."""
        self.emit({"error": {"code": "E-BUG", "message": what, "hint": f"Please report it with {report}"}}, ok=False)
        if not self.json:
            self.complain(f"E-BUG  {what}. This is a bug of candle-convert; please report it with {report}")


_current = Output()


def current() -> Output:
    """The output of the command that runs in this process."""
    return _current


def notes_json(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """Notes as the ``warnings`` of JSON mode."""
    return [{"code": note.code, "tensor": note.tensor, "message": note.message, "event": note.event} for note in notes]
