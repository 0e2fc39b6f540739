"""Text tables that fit the terminal: long cells are cut in the middle, prose is wrapped below its row."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ...runtime.base.errors import printable

GAP = "  "
SHORTEST = 8
"""Columns that a cell of text keeps at least, where it was longer."""
NARROWEST = 20
MAX_DIGITS = 9
"""Digits of COLUMNS that count."""
INDENT = "    "


def aligned(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Collection[int] = (),
    prose: Collection[int] = (),
    optional: Collection[int] = (),
    width: int | None = None,
) -> list[str]:
    """Rows under columns as lines of text, with control characters made visible.

    Args:
        right: columns that are flushed right; they are never cut.
        prose: columns of sentences, which stand on lines of their own below a row where the table would be too wide.
        optional: columns that are left out where the table would be too wide, as those without a value are.
        width: columns of the terminal; None for that of `terminal_width`, which is unlimited where output is no
            terminal.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    width = terminal_width() if width is None else width
    lines = [list(columns), *cells]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(columns))]
    if width is None or _total(widths) <= width:
        return _joined(lines, widths, right)
    empty = {column for column in range(len(columns)) if not any(row[column] for row in cells)}
    shown = [column for column in range(len(columns)) if column not in {*prose, *empty, *optional}]
    cut = _cut([widths[column] for column in shown], [column in right for column in shown], width)
    if cut is None:
        return _stacked(columns, cells, width)
    kept = {shown.index(column) for column in right if column in shown}
    table = _joined(
        [[_shortened(line[column], cut[index]) for index, column in enumerate(shown)] for line in lines], cut, kept
    )
    below = [" ".join(row[column] for column in prose if row[column]) for row in cells]
    if not shown:
        return [part for text in below for part in _wrapped(text, width)]
    return [
        table[0],
        *(part for line, text in zip(table[1:], below, strict=True) for part in (line, *_wrapped(text, width))),
    ]


def terminal_width() -> int | None:
    """Columns that a table may take: COLUMNS, or those of the terminal; None where output goes elsewhere."""
    chosen = os.environ.get("COLUMNS", "").lstrip("0")
    if chosen.isascii() and chosen.isdigit():
        return max(NARROWEST, int(chosen[:MAX_DIGITS]))
    return (
        max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout is not None and sys.stdout.isatty() else None
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cut(widths: Sequence[int], fixed: Sequence[bool], width: int) -> list[int] | None:
    """Widths that fit, the longest cells losing most; None where that would leave too little of them."""
    cut = list(widths)
    while _total(cut) > width:
        free = [index for index, whole in enumerate(fixed) if not whole and cut[index] > SHORTEST]
        if not free:
            return None
        cut[max(free, key=cut.__getitem__)] -= 1
    return cut


def _joined(lines: Sequence[Sequence[str]], widths: Sequence[int], right: Collection[int]) -> list[str]:
    return [
        GAP.join(
            _padded(cell, width, column in right) for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _stacked(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> list[str]:
    """Rows as wrapped lines of names and values, for a terminal that is too narrow for the columns."""
    lines = []
    for row in rows:
        named = [f"{name} {cell}".strip() for name, cell in zip(columns, row, strict=True) if cell]
        lines += _wrapped(", ".join(named), width, first="")
    return lines


def _wrapped(text: str, width: int, first: str = INDENT) -> list[str]:
    return (
        textwrap.wrap(text, width, initial_indent=first, subsequent_indent=INDENT, break_on_hyphens=False)
        if text
        else []
    )


def _shortened(text: str, width: int) -> str:
    """A text of at most so many columns, without its middle where it is longer."""
    if _width(text) <= width:
        return text
    tail = (width - 1) // 2
    head = text
    while _width(head) > width - 1 - tail:
        head = head[:-1]
    end = text[-tail:] if tail else ""
    while _width(end) > tail:
        end = end[1:]
    return f"{head}…{end}"


def _padded(text: str, width: int, right: bool) -> str:
    spaces = " " * (width - _width(text))
    return spaces + text if right else text + spaces


def _width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
