"""Escaping of names and values from files before a terminal or person sees them.

`printable` is for one line, such as a name; `printable_lines` for content of many lines, such as generated text;
`printable_json` for JSON, which decodes to the same strings. Escaped are control characters, format characters
(bidirectional overrides, zero-width marks), surrogates, private and unassigned code points, characters without a glyph,
and combining marks beyond a few on one character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}
"""Characters that Python calls printable and that show nothing: fillers and variation selectors."""
KEPT = frozenset("\n\t\u200c\u200d\ufe0e\ufe0f")
"""Characters that content of many lines keeps besides printable ones: joiners and selectors of scripts and emoji."""
_CONTROLS = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]|\\r(?!\\n)")
MARKS = 5
"""Combining marks that one character may carry."""


def printable(text: str) -> str:
    """`text` in one line that a terminal only shows: everything else, line breaks included, is escaped as Python does
    it."""
    return text if _plain(text) else "".join(_escape(c) if unsafe else c for c, unsafe in _characters(text))


def printable_lines(text: str) -> str:
    """`text` of many lines for a terminal: line breaks, tabs, joiners and spaces of any width stay."""
    if _plain(text):
        return text
    return "".join(
        _escape(c) if unsafe and c not in KEPT and unicodedata.category(c) != "Zs" else c
        for c, unsafe in _characters(text)
    )


def without_controls(text: str) -> str:
    """`text` for a file or a pipe: control characters are escaped, except line breaks and tabs, because a terminal that
    shows it later would obey them."""
    return _CONTROLS.sub(lambda found: _escape(found[0]), text)


def printable_json(value: Any, *, ascii_only: bool = False) -> str:
    """`value` as JSON in one line, in which what a terminal would not merely show is escaped as ``\\uXXXX``."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    return text if _plain(text) else "".join(json.dumps(c)[1:-1] if unsafe else c for c, unsafe in _characters(text))


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def _characters(text: str) -> Iterator[tuple[str, bool]]:
    """Every character, and whether a terminal would do anything but show it."""
    marks = 0
    for c in text:
        marks = marks + 1 if not c.isascii() and unicodedata.category(c)[0] == "M" else 0
        yield c, not c.isprintable() or c in INVISIBLE or marks > MARKS
