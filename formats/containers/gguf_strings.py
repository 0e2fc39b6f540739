"""Arrays of short strings in GGUF headers, a window of bytes at a time: each string has its length before it.

Lengths below 256 are zeros but for their lowest byte, and texts have no such zeros, so that all lengths are found at once; that each string ends
where the next one begins is the proof.
"""

from __future__ import annotations

SEPARATORS = range(1, 32)
"""Characters of which one stands between the strings while they are decoded."""


def short_strings(window: bytes, at: int, count: int, width: int, low: int) -> tuple[list[str], int] | None:
    """Strings that lie whole in a window from `at` on, `count` at most, and where they end.

    None where one of them is too long, holds zeros, is no UTF-8, or all separators occur in them, so that they have to be read one by one.

    Args:
        width: bytes of a length.
        low: which of them is the lowest.
    """
    import numpy

    data = numpy.frombuffer(window, numpy.uint8)[at:]
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
    kept = numpy.ones(ends[-1], bool)
    for place in range(width):
        kept[starts + place] = False
    text = data[: ends[-1]][kept].tobytes()
    mark = next((mark for mark in SEPARATORS if bytes((mark,)) not in text), None)
    if mark is None:
        return None
    marked = data[: ends[-1]].copy()
    marked[starts] = mark
    kept[starts] = True
    try:
        return marked[kept].tobytes().decode()[1:].split(chr(mark)), at + int(ends[-1])
    except UnicodeDecodeError:
        return None
