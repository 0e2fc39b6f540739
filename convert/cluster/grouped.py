"""Groups of items in order, by their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


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
