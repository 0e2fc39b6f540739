"""Segments of speech from the probabilities of frames, as silero_vad's ``get_speech_timestamps`` finds them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

BELOW = 0.15
"""Speech ends where the probability is lower than the threshold by this."""
LEAST = 0.01
"""Minimum of the probability at which speech ends."""


def speech_segments(
    probabilities: Sequence[float],
    samples: int,
    frame: int,
    threshold: float,
    shortest: int,
    silence: int,
    padding: int,
) -> list[tuple[int, int]]:
    """First and last sample of each segment.

    Args:
        probabilities: of each frame.
        samples: of the sound.
        frame: samples of a frame.
        threshold: at which speech starts.
        shortest: samples of a segment, more than these.
        silence: samples of silence that end a segment.
        padding: samples that are added at both ends; segments that would meet share the silence between them.
    """
    found: list[list[int]] = []
    start = end = None
    lower = max(threshold - BELOW, LEAST)
    for number, probability in enumerate(probabilities):
        at = number * frame
        if probability >= threshold:
            start, end = at if start is None else start, None
        elif probability < lower and start is not None:
            end = at if end is None else end
            if at - end >= silence:
                if end - start > shortest:
                    found.append([start, end])
                start = end = None
    if start is not None and samples - start > shortest:
        found.append([start, samples])
    return _padded(found, samples, padding)


def _padded(segments: list[list[int]], samples: int, padding: int) -> list[tuple[int, int]]:
    for this, following in itertools.pairwise(segments):
        between = following[0] - this[1]
        share = between // 2 if between < 2 * padding else padding
        this[1], following[0] = this[1] + share, following[0] - share
    if segments:
        segments[0][0] = max(0, segments[0][0] - padding)
        segments[-1][1] = min(samples, segments[-1][1] + padding)
    return [(start, end) for start, end in segments]
