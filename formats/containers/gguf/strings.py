"""Bulk decoding of length-prefixed string arrays in GGUF headers, one window of bytes at a time.

Lengths below 256 are zero except for their lowest byte, and text contains no such zeros, so all lengths are found at
once; each string ending where the next begins proves the split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

SEPARATORS = range(1, 32)
"""Candidate separator characters that replace the length fields while the strings are decoded."""

SLICE = 1 << 16
"""Bytes processed at a time, so that temporaries stay in the cache and in memory that Python already has."""


def short_strings(window: bytes, at: int, count: int, width: int, low: int) -> tuple[bytes, np.ndarray, int] | None:
    """Strings entirely in a window from `at` on, at most `count`: their UTF-8 bytes, the length of each, and
    the offset after them.

    None where one of them is too long, holds zeros, is no UTF-8, or all separators occur in them, so that they have to
    be read one by one.

    Args:
        width: bytes of a length.
        low: which of them is the lowest.
    """
    import numpy

    data = numpy.frombuffer(window, numpy.uint8)[at : at + SLICE]
    places = len(data) - width
    if places < 0:
        return b"", data[:0], at
    others = [index for index in range(width) if index != low]
    zero = data == 0
    quiet = zero[others[0] : others[0] + places + 1].copy()
    for index in others[1:]:
        quiet &= zero[index : index + places + 1]
    starts = numpy.flatnonzero(quiet)[:count]
    lengths = data[starts + low]
    ends = starts + width + lengths
    if len(starts) and ends[-1] > len(data):
        starts, lengths, ends = starts[:-1], lengths[:-1], ends[:-1]
    if not len(starts):
        return b"", data[:0], at
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
        text.decode()
    except UnicodeDecodeError:
        return None
    return text.translate(None, bytes((0, mark))), lengths, at + int(ends[-1])
