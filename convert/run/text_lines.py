"""Texts of a command line: words, lines of a file, or lines of standard input."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from ...models.pipelines.text_inputs import TruncationWarning
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.ir.graph import Note
from ...runtime.tensor.file import Source
from ..console.stdio import STREAM
from ..console.warned import warned

MOST = 1 << 30
"""Bytes of standard input."""


def texts_of(words: Sequence[str], file: str | None, what: str = "TEXT") -> list[str]:
    """The words, then the lines of a file, or of standard input for ``-``.

    Raises UsageError without any text, FormatError for a file that is empty or not UTF-8.
    """
    if file is None:
        if not words:
            raise UsageError("E-TEXT-NONE", None, f"missing {what}", hint=f"Give {what}, or -f FILE with one a line")
        return list(words)
    name = None if file == STREAM else file
    data = sys.stdin.buffer.read(MOST) if file == STREAM else _content(file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "Convert it, for example with iconv -t UTF-8"
        raise FormatError("E-TEXT-UTF8", name, "the text is not UTF-8", at=error.start, hint=hint) from error
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").removesuffix("\n").split("\n")]
    if not any(line.strip() for line in lines):
        raise FormatError("E-TEXT-EMPTY", name, "holds no text", hint="Write one text a line")
    return [*words, *lines]


def _content(path: str) -> bytes:
    source = Source(path)
    source.budget.charge(source.size, "the texts")
    return bytes(source.read(0, source.size))


def cut_texts() -> contextlib.AbstractContextManager[list[Note]]:
    """Notes of the texts that models cut in the block."""
    return warned(TruncationWarning, "W-TEXT-LONG")
