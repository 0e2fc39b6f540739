"""Merge loop of byte-pair encodings, with merges ordered by rank or by the score of their result."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Order = Callable[[str, str], "float | None"]


def merged(symbols: list[str], order: Order) -> list[str]:
    """The symbols after all merges, the pair of least order first, the leftmost of equal ones.

    Args:
        symbols: of a text, one after another.
        order: of merging two neighbours, None where they must not be merged.
    """
    count = len(symbols)
    if count < 2:
        return symbols
    texts: list[str | None] = list(symbols)
    left, right = list(range(-1, count - 1)), list(range(1, count + 1))
    heap: list[tuple[float, int, int, str]] = []

    def offer(first: int, second: int) -> None:
        one, other = texts[first], texts[second]
        assert one is not None
        assert other is not None
        rank = order(one, other)
        if rank is not None:
            heapq.heappush(heap, (rank, first, second, one + other))

    for index in range(count - 1):
        offer(index, index + 1)
    while heap:
        _, first, second, whole = heapq.heappop(heap)
        one, other = texts[first], texts[second]
        if one is None or other is None or right[first] != second or one + other != whole:
            continue
        texts[first], texts[second] = whole, None
        after = right[first] = right[second]
        if after < count:
            left[after] = first
            offer(first, after)
        if left[first] >= 0:
            offer(left[first], first)
    return [text for text in texts if text is not None]
