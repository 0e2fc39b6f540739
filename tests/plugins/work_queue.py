"""Work queue of forked workers: the tests of a file stay together until no other file is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pytest

PREFETCHED = 2
"""Tests that a worker holds: the one that it runs and the one after it, which decides what is torn down between."""
PREFETCHED_SHORT = 3
"""The same where tests take less than `SHORT_SECONDS`: such a worker does not wait for an answer."""
SHORT_SECONDS = 0.2


class Holder(Protocol):
    """A worker: indices of the tests of its file that were not sent to it."""

    rest: deque[int]


class WorkQueue:
    """Files whose tests no worker holds yet, in order."""

    def __init__(self, files: Iterable[Sequence[int]]) -> None:
        self.files = deque(deque(file) for file in files)

    def take(self, holders: Iterable[Holder]) -> deque[int]:
        """The next file; if none is left, half of what a worker has left of its file; empty if nothing is left."""
        if self.files:
            return self.files.popleft()
        richest = max(holders, key=lambda holder: len(holder.rest), default=None)
        if richest is None:
            return deque()
        kept = len(richest.rest) // 2
        taken = deque(list(richest.rest)[kept:])
        richest.rest = deque(list(richest.rest)[:kept])
        return taken

    def left(self, holders: Iterable[Holder]) -> bool:
        """Whether there are tests to take."""
        return bool(self.files) or any(holder.rest for holder in holders)

    def put_back(self, tests: Iterable[int]) -> None:
        """Make tests of a file the next to be taken."""
        returned = deque(tests)
        if returned:
            self.files.appendleft(returned)


def path_of(item: pytest.Item) -> str:
    """The file of a test, as its name begins."""
    return item.nodeid.partition("::")[0]


def by_file(items: Iterable[pytest.Item]) -> dict[str, list[int]]:
    """Indices of the tests of each file."""
    files: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        files.setdefault(path_of(item), []).append(index)
    return files


def dearest_first(files: Mapping[str, Sequence[int]], seconds: Mapping[str, float]) -> list[Sequence[int]]:
    """Files in the order in which they are run.

    Args:
        seconds: mean time of a test of each file. Files without one precede the others: those at the top of the tree
            first, because they test all of it, in processes of their own.
    """

    def cost(path: str) -> tuple[float, int]:
        known = seconds.get(path)
        return (-known * len(files[path]), 0) if known is not None else (float("-inf"), path.count("/"))

    return [files[path] for path in sorted(files, key=cost)]
