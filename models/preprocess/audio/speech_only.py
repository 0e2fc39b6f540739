"""Speech alone: a recording without what lies between its segments of speech, and the times of the whole one."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

import numpy as np


class SpeechOnly:
    """The segments of speech of a recording, one after the other.

    Args:
        segments: first sample, and the one after the last, in order.
        rate: samples a second.
    """

    def __init__(self, segments: Sequence[tuple[int, int]], rate: int) -> None:
        self._segments, self._rate = segments, rate
        lengths = [end - start for start, end in segments]
        self._ends = np.cumsum(lengths, dtype=np.int64).tolist()
        self._left_out = [
            start - (end - length) for (start, _), end, length in zip(segments, self._ends, lengths, strict=True)
        ]

    def blocks(self, blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The samples of the segments, of blocks f32 [count] of the recording."""
        done, at = 0, 0
        for block in blocks:
            while at < len(self._segments) and self._segments[at][0] < done + len(block):
                start, end = self._segments[at]
                yield block[max(start - done, 0) : end - done]
                if end > done + len(block):
                    break
                at += 1
            done += len(block)

    def original(self, seconds: float, *, end: bool = False, near: float | None = None) -> float:
        """A time of the segments as one of the recording.

        Args:
            seconds: from the beginning of the first segment on.
            end: whether it ends something: where segments meet, it is then in the earlier one.
            near: a time in whose segment it is in any case.
        """
        if not self._segments:
            return seconds
        place = round((seconds if near is None else near) * self._rate)
        find = bisect.bisect_left if end else bisect.bisect_right
        at = min(find(self._ends, place), len(self._ends) - 1)
        return seconds + self._left_out[at] / self._rate
