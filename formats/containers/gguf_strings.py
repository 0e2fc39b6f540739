"""Arrays of short strings in GGUF headers, a window of bytes at a time: each string has its length before it.

Lengths below 256 are zeros but for their lowest byte, and texts have no such zeros, so that all lengths are found at once; that each string ends
where the next one begins is the proof.
"""

from __future__ import annotations

SEPARATORS = range(1, 32)
"""Characters of which one stands in place of the lengths while the strings are decoded."""

SLICE = 1 << 16
"""Bytes that are looked at together: what is computed of them stays in the cache, and in memory that Python has already."""


def short_strings(window: bytes, at: int, count: int, width: int, low: int) -> tuple[list[str], int] | None:
    """Strings that lie whole in a window from `at` on, `count` at most, and where they end.

    None where one of them is too long, holds zeros, is no UTF-8, or all separators occur in them, so that they have to be read one by one.

    Args:
        width: bytes of a length.
        low: which of them is the lowest.
    """
    import numpy

    data = numpy.frombuffer(window, numpy.uint8)[at : at + SLICE]
    places = len(data) - width
    if places < 0:
        return [], at
    others = [place for place in range(width) if place != low]
    zero = data == 0
    quiet = zero[others[0] : others[0] + places + 1].copy()
    for place in others[1:]:
        quiet &= zero[place : place + places + 1]
    starts = numpy.flatnonzero(quiet)[:count]
    ends = starts + width + data[starts + low]
    if len(starts) and ends[-1] > len(data):
        starts, ends = starts[:-1], ends[:-1]
    if not len(starts):
        return [], at
    if starts[0] or (starts[1:] != ends[:-1]).any():
        return None
    marked = data[: ends[-1]].copy()
    for mark in SEPARATORS:
        marked[starts + low] = mark
        text = marked.tobytes()
        if text.count(mark) == len(starts):
            break
    else:
        return None
    if text.count(0) != len(others) * len(starts):
        return None
    try:
        return text.translate(None, bytes(1)).decode()[1:].split(chr(mark)), at + int(ends[-1])
    except UnicodeDecodeError:
        return None
