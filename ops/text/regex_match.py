"""Full-match of a compiled regular expression in time linear in the string.

All ways through the program are followed at once, so nothing is tried twice whatever the pattern is; sets of positions
that were met before are looked up (Thompson 1968; Cox, "Regular Expression Matching in the Virtual Machine Approach").
"""

from __future__ import annotations

import time

from ...runtime.base.limits import current, time_error
from .char_class import WORDS, Ranges
from .regex_compile import ASSERT, CHARACTER, JUMP, Fragment

MAX_KNOWN = 20_000
"""Sets of positions that are remembered at a time."""
CHECKED_EVERY = 1024
"""Characters between two looks at the clock."""


def _within(point: int, ranges: Ranges) -> bool:
    low, high = 0, len(ranges)
    while low < high:
        middle = (low + high) // 2
        if ranges[middle][1] < point:
            low = middle + 1
        else:
            high = middle
    return low < len(ranges) and ranges[low][0] <= point


def _conditions(before: str, after: str) -> frozenset[str]:
    """Assertions that hold between two characters, either of which may be absent."""
    inside = (before != "" and _within(ord(before), WORDS)) == (after != "" and _within(ord(after), WORDS))
    held = {
        "begin": before == "",
        "end": after == "",
        "line": before in ("", "\n"),
        "line end": after in ("", "\n"),
        "inside": inside,
        "boundary": not inside,
    }
    return frozenset(name for name, holds in held.items() if holds)


class Matcher:
    """A program with what is known of its ways."""

    def __init__(self, program: Fragment) -> None:
        self.program = program
        self.asserts = any(kind == ASSERT for kind, _, _ in program)
        self.reached: dict[tuple[frozenset[int], frozenset[str]], frozenset[int]] = {}
        self.steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self.deadline = time.monotonic() + current().time

    def matches(self, text: str) -> bool:
        """Whether the whole text matches; LimitError when the time is over."""
        places: frozenset[int] = frozenset((0,))
        before = ""
        for index, letter in enumerate(text):
            if index % CHECKED_EVERY == 0 and time.monotonic() > self.deadline:
                raise time_error("RegexFullMatch")
            places = self.step(self.closed(places, before, letter), letter)
            if not places:
                return False
            before = letter
        return len(self.program) in self.closed(places, before, "")

    def closed(self, places: frozenset[int], before: str, after: str) -> frozenset[int]:
        """The characters' and the end's positions that can be reached without a character."""
        conditions = _conditions(before, after) if self.asserts else frozenset()
        found = self.reached.get((places, conditions))
        if found is not None:
            return found
        seen, pending, result = set(places), list(places), []
        while pending:
            place = pending.pop()
            if place == len(self.program):
                result.append(place)
                continue
            kind, first, second = self.program[place]
            if kind == CHARACTER:
                result.append(place)
                continue
            offsets = (
                (first,)
                if kind == JUMP
                else ((1,) if first in conditions else ())
                if kind == ASSERT
                else (first, second)
            )
            ahead = [place + offset for offset in offsets if place + offset not in seen]
            seen.update(ahead)
            pending += ahead
        if len(self.reached) >= MAX_KNOWN:
            self.reached.clear()
        self.reached[places, conditions] = made = frozenset(result)
        return made

    def step(self, places: frozenset[int], letter: str) -> frozenset[int]:
        """The positions after those that take the character."""
        found = self.steps.get((places, letter))
        if found is None:
            point, end = ord(letter), len(self.program)
            found = frozenset(index + 1 for index in places if index != end and _within(point, self.program[index][1]))
            if len(self.steps) >= MAX_KNOWN:
                self.steps.clear()
            self.steps[places, letter] = found
        return found
