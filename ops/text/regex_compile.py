"""Compiler of RE2 regular expressions to programs for `regex_match`.

Source: github.com/google/re2/wiki/Syntax. Back references and look-around are not part of it. Scripts of Unicode
(``\\p{Greek}``) are refused: Python has no table of them.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from ...runtime.base.dataclass import dataclass
from .char_class import ANY, NOT_NEWLINE, PERL, POSIX, Ranges, category, complement, united, without_case

MAX_PROGRAM = 50_000
"""Instructions of one program."""
MAX_REPEAT = 1000
"""The largest number in a repetition, as in RE2."""
MAX_DEPTH = 1000
"""Groups inside one another, as in RE2."""

CHARACTER, SPLIT, JUMP, ASSERT = range(4)
Fragment = list[tuple[int, Any, Any]]
"""(CHARACTER, ranges, None), (SPLIT, offset, offset), (JUMP, offset, None), (ASSERT, what, None)."""

ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
ASSERTIONS = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}
REPEAT = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
GROUP = re.compile(r"\?(?:P?<(\w+)>|([imsU]*(?:-[imsU]+)?)([:)]))")
NUMBER = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|([0-7]{2,3}|0)")
PROPERTY = re.compile(r"([pP])(?:([A-Z])|\{(\^?)(\w+)\})")


class PatternError(Exception):
    """The pattern is not of RE2's syntax; the message says where."""


@dataclass
class _Group:
    """An open group: finished alternatives, pieces of the one at hand, and the flags around it."""

    flags: frozenset[str]
    alternatives: list[Fragment] = field(default_factory=list)
    pieces: list[Fragment] = field(default_factory=list)
    repeated: bool = True


def compiled(pattern: str) -> Fragment:
    """The program of a pattern; falling off its end is a match. PatternError for malformed and too large patterns."""
    return _Parser(pattern).parsed()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self.open: list[_Group] = [_Group(self.flags)]
        self.size = 0

    def wrong(self, why: str) -> PatternError:
        return PatternError(f"{why} at character {self.at}")

    def parsed(self) -> Fragment:
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            step = {"(": self.group, ")": self.close, "|": self.alternative, "[": self.set_of, "\\": self.escape}.get(
                letter
            )
            if step is not None:
                step()
            elif letter in "*+?":
                self.repeat({"*": 0, "+": 1, "?": 0}[letter], {"?": 1}.get(letter))
            elif letter == "{" and (count := REPEAT.match(self.text, self.at - 1)):
                self.at = count.end()
                low = int(count[1])
                self.repeat(low, low if count[2] is None else int(count[3]) if count[3] else None)
            else:
                self.single(letter)
        if len(self.open) != 1:
            raise self.wrong("a group is not closed")
        return self.finished(self.open[0])

    def add(self, piece: Fragment, repeatable: bool = True) -> None:
        self.size += len(piece)
        if self.size > MAX_PROGRAM:
            raise self.wrong("the pattern is too large")
        self.open[-1].pieces.append(piece)
        self.open[-1].repeated = not repeatable

    def single(self, letter: str) -> None:
        many = "m" in self.flags
        if letter == "^":
            self.add([(ASSERT, "line" if many else "begin", None)])
        elif letter == "$":
            self.add([(ASSERT, "line end" if many else "end", None)])
        elif letter == ".":
            self.add([(CHARACTER, ANY if "s" in self.flags else NOT_NEWLINE, None)])
        else:
            self.characters(((ord(letter), ord(letter)),))

    def characters(self, ranges: Ranges) -> None:
        self.add([(CHARACTER, without_case(ranges) if "i" in self.flags else ranges, None)])

    def group(self) -> None:
        before = self.flags
        if self.text.startswith("?", self.at):
            match = GROUP.match(self.text, self.at)
            if match is None:
                raise self.wrong("unknown kind of group")
            self.at = match.end()
            on, _, off = (match[2] or "").partition("-")
            self.flags = (self.flags | set(on)) - set(off)
            if match[3] == ")":
                return
        if len(self.open) >= MAX_DEPTH:
            raise self.wrong("groups are nested too deep")
        self.open.append(_Group(before))

    def close(self) -> None:
        if len(self.open) == 1:
            raise self.wrong("a group is closed that is not open")
        group = self.open.pop()
        self.flags = group.flags
        fragment = self.finished(group)
        self.size -= sum(map(len, group.pieces))
        self.size -= sum(map(len, group.alternatives))
        self.add(fragment)

    def alternative(self) -> None:
        group = self.open[-1]
        group.alternatives.append([step for piece in group.pieces for step in piece])
        group.pieces, group.repeated = [], True

    def finished(self, group: _Group) -> Fragment:
        """The alternatives of a group as one fragment."""
        parts = [*group.alternatives, [step for piece in group.pieces for step in piece]]
        left = sum(len(part) + 2 for part in parts[:-1]) + len(parts[-1])
        result: Fragment = []
        for part in parts[:-1]:
            result += [(SPLIT, 1, len(part) + 2), *part]
            left -= len(part) + 2
            result.append((JUMP, left + 1, None))
        return result + parts[-1]

    def repeat(self, low: int, high: int | None) -> None:
        group = self.open[-1]
        if group.repeated or not group.pieces:
            raise self.wrong("there is nothing to repeat")
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            raise self.wrong(f"a repetition is not between 0 and {MAX_REPEAT}")
        piece = group.pieces.pop()
        self.size -= len(piece)
        if (len(piece) + 2) * max(low, high or 0, 1) + self.size > MAX_PROGRAM:
            raise self.wrong("the pattern is too large")
        if self.text.startswith("?", self.at):
            self.at += 1
        length = len(piece)
        if high is None and low == 0:
            made = [(SPLIT, 1, length + 2), *piece, (JUMP, -length - 1, None)]
        elif high is None:
            made = [*piece * low, (SPLIT, -length, 1)]
        else:
            made = piece * low
            for left in range(high - low, 0, -1):
                made += [(SPLIT, 1, left * (length + 1)), *piece]
        self.add(made, repeatable=False)

    def escape(self) -> None:
        if self.text.startswith("Q", self.at):
            end = self.text.find("\\E", self.at)
            for letter in self.text[self.at + 1 : end if end >= 0 else None]:
                self.characters(((ord(letter), ord(letter)),))
            self.at = end + 2 if end >= 0 else len(self.text)
            return
        letter = self.text[self.at : self.at + 1]
        if letter in ASSERTIONS and letter:
            self.at += 1
            self.add([(ASSERT, ASSERTIONS[letter], None)])
        else:
            self.characters(self.escaped())

    def escaped(self) -> Ranges:
        """The characters that an escape stands for, in and outside of sets."""
        letter = self.text[self.at : self.at + 1]
        number, named = NUMBER.match(self.text, self.at), PROPERTY.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            point = int(number[3], 8) if number[3] is not None else int(number[1] or number[2], 16)
            if point > ANY[0][1]:
                raise self.wrong("unknown character")
            return ((point, point),)
        if named is not None:
            self.at = named.end()
            ranges = category(named[2] or named[4])
            if ranges is None:
                raise self.wrong(f"the character class {named[2] or named[4]!r} is not known; general categories are")
            return complement(ranges) if (named[1] == "P") != (named[3] == "^") else ranges
        self.at += 1
        if letter in PERL and letter:
            return PERL[letter]
        if letter in ESCAPES and letter:
            return ((ESCAPES[letter], ESCAPES[letter]),)
        if not letter or letter == "_" or (letter.isascii() and letter.isalnum()) or not letter.isascii():
            raise self.wrong(f"unknown escape {letter!r}")
        return ((ord(letter), ord(letter)),)

    def set_of(self) -> None:
        """A set in brackets."""
        negated = self.text.startswith("^", self.at)
        self.at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.text.startswith("]", self.at):
            ranges += self.member()
            first = False
        self.at += 1
        whole = united(ranges)
        whole = without_case(whole) if "i" in self.flags else whole
        self.add([(CHARACTER, complement(whole) if negated else whole, None)])

    def member(self) -> Ranges:
        """One named class, character or range of a set."""
        posix = re.compile(r"\[:(\^?)(\w+):\]").match(self.text, self.at)
        if posix is not None:
            if posix[2] not in POSIX:
                raise self.wrong(f"the character class {posix[2]!r} is not known")
            self.at = posix.end()
            return complement(POSIX[posix[2]]) if posix[1] else POSIX[posix[2]]
        low = self.one()
        if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
            self.at += 1
            high = self.one()
            if (
                len(low) != 1
                or len(high) != 1
                or low[0][0] != low[0][1]
                or high[0][0] != high[0][1]
                or high[0][0] < low[0][0]
            ):
                raise self.wrong("a range in a set is none")
            return ((low[0][0], high[0][0]),)
        return low

    def one(self) -> Ranges:
        if self.at >= len(self.text):
            raise self.wrong("a set is not closed")
        letter = self.text[self.at]
        self.at += 1
        return self.escaped() if letter == "\\" else ((ord(letter), ord(letter)),)
