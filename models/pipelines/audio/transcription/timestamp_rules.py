"""Rules of Whisper's texts: which tokens may come next (Radford et al. 2022, arXiv:2212.04356, section 3.8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....runtime.base.dataclass import dataclass
from .speech_tokens import PRECISION, SpeechTokens

LATEST_START = 1.0
"""Seconds: the first timestamp of a window is at most this."""


@dataclass(frozen=True)
class TimestampRules:
    """Constraints on the next token.

    Attributes:
        tokens: ids of special tokens.
        suppressed: tokens that never occur.
        suppressed_at_begin: tokens that are not the first of a window.
        prompt: length of what stands before the first generated token.
        timestamps: whether segments start and end with timestamps; without, there are none.
    """

    tokens: SpeechTokens
    suppressed: Sequence[int]
    suppressed_at_begin: Sequence[int]
    prompt: int
    timestamps: bool = True

    def apply(self, logits: np.ndarray, sequences: np.ndarray) -> None:
        """Set logits f32 [rows, vocabulary] of tokens that may not follow sequences i64 [rows, length] to -inf."""
        logits[:, list(self.suppressed)] = -np.inf
        if sequences.shape[1] == self.prompt:
            logits[:, list(self.suppressed_at_begin)] = -np.inf
        logits[:, self.tokens.no_timestamps] = -np.inf
        if not self.timestamps:
            logits[:, self.tokens.first_timestamp :] = -np.inf
            return
        for row, sequence in zip(logits, sequences[:, self.prompt :], strict=True):
            self._pair(row, sequence)

    def _pair(self, logits: np.ndarray, sequence: np.ndarray) -> None:
        """Timestamps come in pairs, an end and a start, and never decrease; where all of them together are more
        probable than any text token, one of them comes."""
        first = self.tokens.first_timestamp
        after_one = len(sequence) > 0 and sequence[-1] >= first
        after_two = len(sequence) < 2 or sequence[-2] >= first
        if after_one and after_two:
            logits[first:] = -np.inf
        elif after_one:
            logits[: self.tokens.end] = -np.inf
        times = sequence[sequence >= first]
        if len(times):
            least = times[-1] if after_one and not after_two else times[-1] + 1
            logits[first:least] = -np.inf
        if not len(sequence):
            logits[:first] = -np.inf
            logits[first + round(LATEST_START / PRECISION) + 1 :] = -np.inf
        elif _log_sum(logits[first:]) > logits[:first].max():
            logits[:first] = -np.inf


def _log_sum(logits: np.ndarray) -> float:
    """Logarithm of the sum of exponentials, -inf if all are."""
    highest = float(logits.max(initial=-np.inf))
    if highest == -np.inf:
        return highest
    return highest + float(np.log(np.exp(logits - np.float32(highest)).sum()))
