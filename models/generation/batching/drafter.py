"""Drafters: what proposes tokens of rows, and how many of them are worth verifying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....runtime.base.dataclass import dataclass
from ..sampling import Drafted
from .request import Request

GROWTH = 2
"""Tokens that the limit of a row grows by when all proposed ones were accepted; it shrinks by 1 otherwise."""


@dataclass(frozen=True)
class Wanted:
    """A row that tokens are proposed for.

    Attributes:
        tokens: those so far.
        count: most tokens to propose, at least 1.
    """

    row: int
    tokens: Sequence[int]
    count: int


class Drafter(Protocol):
    """Proposes tokens."""

    def begin(self, row: int, request: Request) -> None:
        """Begin a text."""
        ...

    def propose(self, wanted: Sequence[Wanted]) -> list[list[Drafted]]:
        """Proposed tokens of each row, possibly none."""
        ...

    def end(self, row: int) -> None:
        """End a text."""
        ...


class Speculator:
    """Proposes tokens of rows, more of them where they are accepted.

    Args:
        limit: most proposed tokens of a step.
    """

    def __init__(self, drafter: Drafter, limit: int) -> None:
        self._drafter, self._limit = drafter, limit
        self._counts: dict[int, int] = {}

    def begin(self, row: int, request: Request) -> None:
        """Begin a text."""
        self._drafter.begin(row, request)
        self._counts[row] = self._limit

    def propose(self, texts: Sequence[Wanted]) -> list[list[Drafted]]:
        """Proposed tokens of each text, at most its count, which may be 0."""
        limits = [min(one.count, self._counts[one.row]) for one in texts]
        wanted = [Wanted(one.row, one.tokens, limit) for one, limit in zip(texts, limits, strict=True) if limit > 0]
        made = iter(self._drafter.propose(wanted) if wanted else ())
        return [next(made) if limit > 0 else [] for limit in limits]

    def judge(self, row: int, proposed: int, accepted: int) -> None:
        """Adapt to how many of the proposed tokens were accepted."""
        change = GROWTH if accepted == proposed else -1
        self._counts[row] = max(1, min(self._limit, self._counts[row] + change))

    def end(self, row: int) -> None:
        """End a text."""
        del self._counts[row]
        self._drafter.end(row)
