"""Sums of lengths: symbols like ``length + past``, so that a length is known to be the same wherever it is added up again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .graph import Dim

LONGEST = 200
"""Characters of a sum; longer ones are not followed."""
PLUS = " + "


def added(lengths: Iterable[Dim]) -> Dim:
    """The sum: numbers added, symbols joined in the order of the alphabet; None where a length is unknown."""
    total, symbols = _terms(lengths)
    return None if symbols is None else _sum(total, symbols)


def taken(one: Dim, other: Dim) -> Dim:
    """What is left of a sum when some of its terms are taken away; None where the difference is not known to be a length."""
    total, symbols = _terms([one])
    less, fewer = _terms([other])
    if symbols is None or fewer is None or total < less or fewer - symbols:
        return None
    return _sum(total - less, symbols - fewer)


def _terms(lengths: Iterable[Dim]) -> tuple[int, Counter[str] | None]:
    """The numbers added up, and how often each symbol is in the sum."""
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
    return name if len(name) <= LONGEST else None
