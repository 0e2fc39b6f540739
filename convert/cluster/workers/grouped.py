"""Groups of items in order, by their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


SHARE = 4
"""Of what is left, the piece that `tapered` takes next is this part of a thread's share."""
TIMES = 8
"""Times the least size that such a piece has at most."""


def tapered(items: Sequence[tuple[Item, int]], least: int, threads: int) -> Iterator[list[Item]]:
    """Items, each with its bytes, in groups that become smaller towards the end, so that few of them are sent and
    `threads` threads end together: of `TIMES * least` to `least` bytes, or of one item."""
    left = sum(nbytes for _, nbytes in items)
    group: list[Item] = []
    size, most = 0, 0
    for item, nbytes in items:
        if group and size + nbytes > most:
            yield group
            left -= size
            group, size = [], 0
        if not group:
            most = min(TIMES * least, max(least, left // (SHARE * max(1, threads))))
        group.append(item)
        size += nbytes
    if group:
        yield group


def grouped(items: Iterable[tuple[Item, int]], most: int) -> Iterator[list[Item]]:
    """Items, each with its bytes, in groups of at most `most` bytes, or of one item."""
    group: list[Item] = []
    size = 0
    for item, nbytes in items:
        if group and size + nbytes > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += nbytes
    if group:
        yield group
