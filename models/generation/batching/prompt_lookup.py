"""Prompt lookup: the last tokens of a text are looked up in what precedes them, and what followed there is proposed."""

from __future__ import annotations

from collections.abc import Sequence

from ..sampling import Drafted
from .drafter import Wanted
from .request import Request

LONGEST, SHORTEST = 4, 2
"""Lengths of the n-grams that are looked up, the longest first."""


class PromptLookup:
    """A drafter without a model, as of `Drafter`."""

    def __init__(self) -> None:
        self._texts: dict[int, _Text] = {}

    def begin(self, row: int, request: Request) -> None:
        """Begin a text."""
        self._texts[row] = _Text()

    def propose(self, wanted: Sequence[Wanted]) -> list[list[Drafted]]:
        """The tokens after the last occurrence of each text's last n-gram."""
        return [[Drafted(token) for token in self._texts[one.row].following(one.tokens, one.count)] for one in wanted]

    def end(self, row: int) -> None:
        """End a text."""
        del self._texts[row]


class _Text:
    """The n-grams of a text by where they last ended."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def following(self, tokens: Sequence[int], count: int) -> Sequence[int]:
        """Up to `count` tokens that followed the last n-gram of a text, which begins with the tokens of the previous
        call."""
        for end in range(self._indexed + 1, len(tokens)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends[tuple(tokens[end - size : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
        for size in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            found = self._ends.get(tuple(tokens[-size:]))
            if found is not None:
                return tokens[found : found + count]
        return ()
