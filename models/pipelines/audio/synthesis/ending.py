"""End of a sequence of delayed codes: codebook by codebook, as in parler_tts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Ending:
    """Ends of codebooks. A codebook ends no earlier than the step after the one before it has.

    Args:
        codebooks: number of codebooks.
        ends: codes that end a codebook; empty if nothing does.
        min_length: steps before which nothing ends.
    """

    def __init__(self, codebooks: int, ends: Sequence[int], min_length: int) -> None:
        self._ends, self._left = np.array(ends, np.int64), min_length
        self._done = np.zeros(codebooks, bool)
        self._first = 0

    @property
    def ended(self) -> bool:
        """Whether every codebook has ended."""
        return bool(self._done.all())

    def limited(self, logits: np.ndarray) -> np.ndarray:
        """Logits [codebooks, vocabulary], changed in place, without ends where none may be."""
        if len(self._ends):
            if self._done[self._first] and self._first < len(self._done) - 1:
                self._first += 1
            logits[self._first + 1 if self._left <= 0 else 0 :, self._ends] = -np.inf
        return logits

    def push(self, chosen: np.ndarray) -> np.ndarray:
        """The codes of a step [codebooks]: those chosen, the end in codebooks that have ended."""
        self._left -= 1
        if not len(self._ends):
            return chosen
        found = np.where(self._done, self._ends[0], chosen)
        self._done |= np.isin(found, self._ends)
        return found
