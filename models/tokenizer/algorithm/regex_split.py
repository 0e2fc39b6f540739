"""Splitting text into words by patterns with Unicode classes, one pattern after another, each on the pieces that the
one before left.

Characters outside ASCII are seen by their class only (letter, number, punctuation, mark, symbol, space), so that a
pattern means the same to Python's `re` as to llama.cpp. ``\\\\s``, ``\\\\d`` and ``\\\\b`` are ASCII's, other white
space counting as a vertical tab.

Source: llama.cpp's unicode.cpp (unicode_regex_split).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from ....runtime.base.process_cache import process_cache

Rule = Callable[[str], Iterator[str]]
CLASSES = {
    "N": ("\xd1", "0-9"),
    "L": ("\xd2", "A-Za-z"),
    "P": ("\xd3", r"!-#%-*,-/:-;?-@\[-\]_\{\}"),
    "M": ("\xd4", ""),
    "S": ("\xd5", r"$+<->^`|~"),
}
"""First letter of a category -> the character that stands for those outside ASCII, and those inside it."""
OTHER, SPACE = "\xd0", "\v"
WHITE = frozenset("\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
CLASS = re.compile(r"\\p\{([NLPMS])[a-z]?\}")
HAN = "\xd6"
HAN_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2CEB0, 0x2EBEF),
    (0x2F800, 0x2FA1F),
)
"""Chinese characters, which `HAN` stands for in patterns that distinguish them."""


class _Collapsed(dict[int, str]):
    """Character -> its replacement, computed when it is first met."""

    def __missing__(self, code: int) -> str:
        found = self[code] = _class(chr(code))
        return found


def _class(character: str) -> str:
    if character.isascii():
        return character
    if character in WHITE:
        return SPACE
    named = CLASSES.get(unicodedata.category(character)[0])
    return named[0] if named else OTHER


class _White(dict[int, str]):
    """White space outside ASCII as a vertical tab, all else as it is."""

    def __missing__(self, code: int) -> str:
        found = self[code] = SPACE if chr(code) in WHITE else chr(code)
        return found


class _Han(_Collapsed):
    """Chinese characters as a class of their own."""

    def __missing__(self, code: int) -> str:
        found = self[code] = HAN if any(first <= code <= last for first, last in HAN_RANGES) else _class(chr(code))
        return found


_COLLAPSED, _HAN, _WHITE = _Collapsed(), _Han(), _White()


def words(text: str, patterns: tuple[str, ...]) -> list[str]:
    """The pieces of a text, in order; together they are the text."""
    pieces = [text] if text else []
    for pattern in patterns:
        rule = digits_from_the_right if pattern is FROM_THE_RIGHT else by_pattern(pattern)
        pieces = [part for piece in pieces for part in rule(piece) if part]
    return pieces


@process_cache
def by_pattern(pattern: str) -> Rule:
    """Matches of a pattern are pieces, and so is what stands between them."""
    classes = CLASS.search(pattern) is not None
    compiled = re.compile(_collapsed(pattern) if classes else pattern, re.ASCII)
    table = _HAN if HAN in pattern else _COLLAPSED if classes else _WHITE

    def split(text: str) -> Iterator[str]:
        at = 0
        for match in compiled.finditer(text if text.isascii() else text.translate(table)):
            start, end = match.span()
            if start > at:
                yield text[at:start]
            yield text[start:end]
            at = end
        yield text[at:]

    return split


def _collapsed(pattern: str) -> str:
    """A pattern for collapsed text, in which a class stands in a set of its own unless it is in one."""
    parts, inside, at = [], False, 0
    while at < len(pattern):
        found = CLASS.match(pattern, at)
        if found:
            members = "".join(CLASSES[found[1]])
            parts.append(members if inside else f"[{members}]")
            at = found.end()
            continue
        if pattern[at] == "\\":
            parts.append(pattern[at : at + 2])
            at += 2
            continue
        inside = True if pattern[at] == "[" else False if pattern[at] == "]" else inside
        parts.append(pattern[at])
        at += 1
    return "".join(parts)


FROM_THE_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
"""Stands for `digits_from_the_right`, which keeps what stands before the digits with them."""


def digits_from_the_right(text: str) -> Iterator[str]:
    """Runs of digits in groups of three that are counted from their end; what stands between runs is with the first
    group after it."""
    start = 0
    for match in DIGITS.finditer(text.translate(_COLLAPSED)):
        first = match.start() + (len(match[0]) % 3 or 3)
        for stop in range(first, match.end() + 1, 3):
            yield text[start:stop]
            start = stop
    yield text[start:]


DIGITS = re.compile(f"[{''.join(CLASSES['N'])}]+")
