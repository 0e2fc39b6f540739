"""Parts of a recording that a model without times hears one by one: they end where it is quiet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ....runtime.base.dataclass import dataclass
from .framing import frames_of

FRAME_SECONDS = 0.1
"""Seconds of the frames whose loudness is compared."""
QUIET = 1e-3
"""Energy of a frame in a pause, at most, as a part of that of the loudest one before."""


@dataclass(frozen=True, eq=False)
class Utterance:
    """Samples f32 [count], and the first one's position in the recording."""

    samples: np.ndarray
    start: int


def utterances(
    blocks: Iterable[np.ndarray], rate: int, longest: float, pause: float | None = None
) -> Iterator[Utterance]:
    """Parts of at most `longest` seconds; longer recordings are cut in the middle of the quietest tenth of a second of
    the later half of each part. Only the samples of one part and one block are kept.

    Args:
        blocks: samples f32 [count] each.
        rate: samples a second.
        pause: seconds of quiet after something louder that end a part as soon as they have arrived; None for none.
    """
    held, start, loudest = np.zeros(0, np.float32), 0, 0.0
    most, frame = round(longest * rate), max(1, round(FRAME_SECONDS * rate))
    step = max(1, frame // 2)
    for block in blocks:
        held = np.concatenate([held, block])
        while pause is not None and len(held) >= frame:
            energies = np.square(frames_of(held[:most], frame, step)).sum(1)
            loudest = max(loudest, float(energies.max()))
            end = _paused(energies > QUIET * loudest, round(pause * rate / step))
            if end is None:
                break
            cut = end * step
            yield Utterance(held[:cut], start)
            held, start = held[cut:], start + cut
        while len(held) > most:
            half = most // 2
            energies = np.square(frames_of(held[half:most], frame, step)).sum(1)
            cut = half + int(energies.argmin()) * step + frame // 2
            yield Utterance(held[:cut], start)
            held, start = held[cut:], start + cut
    if len(held):
        yield Utterance(held, start)


def _paused(loud: np.ndarray, count: int) -> int | None:
    """The middle of the first `count` frames without a loud one, after a loud one; None if there are none."""
    (places,) = np.nonzero(loud)
    gaps = np.diff(places, append=len(loud)) - 1
    (long,) = np.nonzero(gaps >= count)
    return int(places[long[0]]) + 1 + count // 2 if len(long) else None
