"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

SEPARATORS = str.maketrans("", "", "-_. ")
CUTOFF = 0.7
"""Similarity (difflib's ratio) from which on a name is worth suggesting."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like `word`; case, ``-`` and ``_`` count for nothing. None where none is close."""
    import difflib

    plain: dict[str, str] = {}
    for name in known:
        plain.setdefault(_plain(name), name)
    found = difflib.get_close_matches(_plain(word[:100]), plain, 1, CUTOFF)
    return plain[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """A hint that names the nearest of the known names, or `otherwise`; in capitals where `word` is."""
    found = nearest(word, known)
    if found is None:
        return otherwise
    return f"Did you mean {found.upper() if word.isupper() else found}?"


def _plain(name: str) -> str:
    return name.lower().translate(SEPARATORS)
