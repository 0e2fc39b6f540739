"""Character classes of regular expressions: sorted ranges of code points, RE2's named classes, letter case."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from ...runtime.base.process_cache import process_cache

Ranges = tuple[tuple[int, int], ...]
"""First and last code points, in order and apart."""

LAST = 0x10FFFF
ANY: Ranges = ((0, LAST),)
NOT_NEWLINE: Ranges = ((0, 9), (11, LAST))


def _spans(text: str) -> Ranges:
    return united([(ord(part[0]), ord(part[-1])) for part in text.split("|")])


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges in order, overlapping ones joined."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def complement(ranges: Ranges) -> Ranges:
    """All other code points."""
    result, start = [], 0
    for first, last in ranges:
        if start < first:
            result.append((start, first - 1))
        start = last + 1
    return (*result, (start, LAST)) if start <= LAST else tuple(result)


DIGITS, WORDS, SPACES = _spans("09"), _spans("09|AZ|az|_"), _spans("\t\n|\f\r| ")
PERL = {
    "d": DIGITS,
    "w": WORDS,
    "s": SPACES,
    **{name.upper(): complement(ranges) for name, ranges in (("d", DIGITS), ("w", WORDS), ("s", SPACES))},
}
POSIX = {
    "alnum": _spans("09|AZ|az"),
    "alpha": _spans("AZ|az"),
    "ascii": ((0, 127),),
    "blank": _spans("\t| "),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGITS,
    "graph": _spans("!~"),
    "lower": _spans("az"),
    "print": _spans(" ~"),
    "punct": _spans("!/|:@|[`|{~"),
    "space": _spans("\t\r| "),
    "upper": _spans("AZ"),
    "word": WORDS,
    "xdigit": _spans("09|AF|af"),
}


@process_cache
def category(name: str) -> Ranges | None:
    """Code points of a general category of Unicode such as ``Lu`` or ``L``, or ``Any``; None for other names."""
    if name == "Any":
        return ANY
    points = [(point, point) for point in range(LAST + 1) if unicodedata.category(chr(point)).startswith(name)]
    return united(points) if points and len(name) <= 2 else None


@process_cache
def _cases() -> dict[int, tuple[int, ...]]:
    """For each code point that has other cases, those: K, k and the Kelvin sign have one another."""
    groups: dict[str, list[int]] = {}
    for point in range(0x1E944):
        letter = chr(point)
        folded = letter.casefold() if len(letter.casefold()) == 1 else letter.lower()
        if folded != letter or letter.upper() != letter:
            groups.setdefault(folded, []).append(point)
    return {point: tuple(group) for group in groups.values() if len(group) > 1 for point in group}


def without_case(ranges: Ranges) -> Ranges:
    """The class with the other case of every letter added."""
    cases = _cases()
    others = [
        (other, other)
        for point, group in cases.items()
        if any(first <= point <= last for first, last in ranges)
        for other in group
    ]
    return united([*ranges, *others])
