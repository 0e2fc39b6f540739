"""Symbolic dimensions: sums such as ``length + past``, so that equal lengths have equal names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .graph import Dim

MAX_CHARACTERS = 200
"""Longest name of a sum; longer sums are unknown dimensions."""
PLUS = " + "


def sum_dims(lengths: Iterable[Dim]) -> Dim:
    """The sum of dimensions: constants added, symbols sorted; None if a dimension is unknown."""
    total, symbols = _terms(lengths)
    return None if symbols is None else _sum(total, symbols)


def subtract_dims(one: Dim, other: Dim) -> Dim:
    """The difference of two sums; None unless every term of `other` occurs in `one`."""
    total, symbols = _terms([one])
    less, fewer = _terms([other])
    if symbols is None or fewer is None or total < less or fewer - symbols:
        return None
    return _sum(total - less, symbols - fewer)


def _terms(lengths: Iterable[Dim]) -> tuple[int, Counter[str] | None]:
    """The constant part, and the count of each symbol; no counts if a dimension is unknown."""
    total, symbols = 0, Counter[str]()
    for length in lengths:
        if length is None:
            return 0, None
        for term in [length] if isinstance(length, int) else length.split(PLUS):
            if isinstance(term, int) or (term.isascii() and term.isdigit()):
                total += int(term)
            else:
                symbols[term] += 1
    return total, symbols


def _sum(total: int, symbols: Counter[str]) -> Dim:
    if not symbols:
        return total
    name = PLUS.join([*sorted(symbols.elements()), *([str(total)] if total else [])])
    return name if len(name) <= MAX_CHARACTERS else None
