"""The delay pattern (Copet et al. 2023, arXiv:2306.05284): codebook k is k frames after the first one.

Position 0 of a sequence is the first input of the decoder. Position p has code ``p - 1 - delay`` of each codebook;
`start` stands before the first code, `pad` after the last one.
"""

from __future__ import annotations

import numpy as np

from .....runtime.base.dataclass import dataclass

UNKNOWN = -1
"""A code that is to be written."""


@dataclass(frozen=True)
class DelayPattern:
    """Delay pattern: positions of a sequence's codes.

    Attributes:
        codebooks: number of codebooks.
        channels: codebooks of one delay: 2 if those of left and right alternate.
        start, pad: codes before the first one and after the last one.
    """

    codebooks: int
    channels: int
    start: int
    pad: int

    @property
    def longest(self) -> int:
        """Frames from the first code of the first codebook to that of the last one."""
        return (self.codebooks - 1) // self.channels

    def length(self, frames: int) -> int:
        """The sequence length of that many frames."""
        return frames + 1 + self.longest

    def frames(self, length: int) -> int:
        """Whole frames in a sequence of that many positions. Inverse of `length`."""
        return max(0, length - 1 - self.longest)

    def laid_out(self, codes: np.ndarray, length: int) -> np.ndarray:
        """A sequence [length, codebooks] of codes [codebooks, positions] that are known, the first one of each codebook
        being `start`; `UNKNOWN` where codes are to be written."""
        positions = np.arange(length)[:, None]
        found = np.full((length, self.codebooks), UNKNOWN)
        index = positions - self._delays
        known = (index >= 0) & (index < codes.shape[1])
        found[known] = codes.T[index[known], np.nonzero(known)[1]]
        found = np.where(index < 1, self.start, found)
        sequence: np.ndarray = np.where(index > self.frames(length), self.pad, found)
        return sequence

    def undelayed(self, sequence: np.ndarray) -> np.ndarray:
        """The codes [codebooks, frames] of a sequence [positions, codebooks]."""
        count = self.frames(len(sequence))
        positions = 1 + self._delays[:, None] + np.arange(count)
        found: np.ndarray = sequence[positions, np.arange(self.codebooks)[:, None]]
        return found

    @property
    def _delays(self) -> np.ndarray:
        return np.arange(self.codebooks) // self.channels
