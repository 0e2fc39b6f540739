"""Parts of a recording that a model without times hears one by one: they end where it is quiet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ....runtime.base.dataclass import dataclass
from .framing import frames_of

FRAME_SECONDS = 0.1
"""Of the frames whose loudness is compared."""


@dataclass(frozen=True, eq=False)
class Utterance:
    """Samples f32 [count], and the first one's place in the recording."""

    samples: np.ndarray
    start: int


def utterances(blocks: Iterable[np.ndarray], rate: int, longest: float) -> Iterator[Utterance]:
    """Parts of at most `longest` seconds; longer recordings are cut in the middle of the quietest tenth of a second of
    the later half of each part. Only the samples of one part and one block are kept.

    Args:
        blocks: samples f32 [count] each.
        rate: samples a second.
    """
    held, start = np.zeros(0, np.float32), 0
    most, frame = round(longest * rate), max(1, round(FRAME_SECONDS * rate))
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > most:
            half = most // 2
            energies = np.square(frames_of(held[half:most], frame, max(1, frame // 2))).sum(1)
            cut = half + int(energies.argmin()) * max(1, frame // 2) + frame // 2
            yield Utterance(held[:cut], start)
            held, start = held[cut:], start + cut
    if len(held):
        yield Utterance(held, start)
