"""Arrays of short strings in GGUF headers, a window of bytes at a time: each string has its length before it.

The lengths are followed by their lowest bytes alone, which is right for strings below 256 bytes and is checked afterwards for all at once.
"""

from __future__ import annotations

SEPARATORS = range(1, 32)
"""Characters of which one stands between the strings while they are decoded."""


def short_strings(window: bytes, at: int, count: int, width: int, low: int) -> tuple[list[str], int] | None:
    """Strings that lie whole in a window from `at` on, `count` at most, and where they end.

    None where one of them is too long, is no UTF-8, or all separators occur in them, so that they have to be read one by one.

    Args:
        width: bytes of a length.
        low: which of them is the lowest.
    """
    import numpy

    ends, end = list[int](), at
    try:
        for _ in range(count):
            end += width + window[end + low]
            ends.append(end)
    except IndexError:
        pass
    while ends and ends[-1] > len(window):
        ends.pop()
    if not ends:
        return [], at
    data = numpy.frombuffer(window, numpy.uint8)[at : ends[-1]]
    starts = numpy.array([at, *ends[:-1]]) - at
    kept = numpy.ones(len(data), bool)
    for place in range(width):
        if place != low and data[starts + place].any():
            return None
        kept[starts + place] = False
    text = data[kept].tobytes()
    mark = next((mark for mark in SEPARATORS if bytes((mark,)) not in text), None)
    if mark is None:
        return None
    marked = data.copy()
    marked[starts] = mark
    kept[starts] = True
    try:
        return marked[kept].tobytes().decode()[1:].split(chr(mark)), ends[-1]
    except UnicodeDecodeError:
        return None
