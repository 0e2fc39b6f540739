"""Constraints on the next token: forced, suppressed and repeated tokens, as the settings of generation_config.json.

Source: transformers' `generation/logits_process.py`. The order in which constraints apply is that of its `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ...runtime.base.dataclass import dataclass


class Constraint(Protocol):
    """Restricts the tokens of one request, such as to those of a grammar; it keeps the request's state."""

    def apply(self, logits: np.ndarray) -> None:
        """Set logits f32 [vocabulary] of tokens that may not come next to -inf, in place."""
        ...

    def accept(self, token: int) -> None:
        """Advance by the chosen token."""
        ...


class Grammar(Protocol):
    """Grammar of texts, which makes a constraint for each."""

    def constraint(self) -> Constraint:
        """The constraint of one text."""
        ...


@dataclass(frozen=True)
class TokenConstraints:
    """Constraints on the next token.

    Attributes:
        repetition_penalty: divides positive scores of tokens that occurred, multiplies negative ones; 1 for none.
        no_repeat_ngram_size: length of token sequences that occur at most once; 0 for no limit.
        bad_words: token sequences that never occur.
        min_length: tokens of a sequence, its prompt included, before which it does not end.
        forced_bos: the only first token after a prompt of one token.
        forced_eos: the only tokens at the last position of a sequence of maximum length.
        suppressed: tokens that never occur.
        suppressed_at_begin: tokens that are not generated first.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_length: int = 0
    forced_bos: int | None = None
    forced_eos: tuple[int, ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_at_begin: tuple[int, ...] = ()

    def needs_probabilities(self, length: int, max_length: int) -> bool:
        """Whether `apply` computes other log probabilities than -inf for the token after `length` others."""
        forced = (self.forced_bos is not None and length == 1) or (bool(self.forced_eos) and length == max_length - 1)
        return forced or self.repetition_penalty != 1

    def apply(
        self, scores: np.ndarray, sequences: np.ndarray, *, prompt: int, max_length: int, ends: Sequence[int]
    ) -> None:
        """Change scores in place; tokens that may not come next get -inf.

        Args:
            scores: logits or log probabilities f32 [rows, vocabulary].
            sequences: tokens so far, i64 [rows, length].
            prompt: how many of them are the prompt's.
            max_length: length of the longest sequence, prompt included.
            ends: tokens that end a sequence.
        """
        length = sequences.shape[1]
        if self.repetition_penalty != 1:
            self._penalize(scores, sequences)
        if self.no_repeat_ngram_size:
            forbid_repeated(scores, sequences, self.no_repeat_ngram_size)
        for word in self.bad_words:
            *before, last = word
            if before or last not in ends:
                rows = (sequences[:, length - len(before) :] == before).all(1) if len(before) <= length else ()
                scores[np.flatnonzero(rows), last] = -np.inf
        if length < self.min_length:
            scores[:, list(ends)] = -np.inf
        if self.forced_bos is not None and length == 1:
            force(scores, [self.forced_bos])
        if self.forced_eos and length == max_length - 1:
            force(scores, self.forced_eos)
        scores[:, list(self.suppressed)] = -np.inf
        first = prompt if prompt > 1 or self.forced_bos is None else prompt + 1
        if length == first:
            scores[:, list(self.suppressed_at_begin)] = -np.inf

    def _penalize(self, scores: np.ndarray, sequences: np.ndarray) -> None:
        held = np.take_along_axis(scores, sequences, 1)
        penalty = np.float32(self.repetition_penalty)
        np.put_along_axis(scores, sequences, np.where(held < 0, held * penalty, held / penalty), 1)


def forbid_repeated(scores: np.ndarray, sequences: np.ndarray, size: int) -> None:
    """Set scores [rows, vocabulary] to -inf where a token would repeat `size` tokens of its sequence [rows, length]."""
    length = sequences.shape[1]
    if length < size:
        return
    windows = np.lib.stride_tricks.sliding_window_view(sequences, size, axis=1)
    suffix = sequences[:, length + 1 - size :]
    rows, places = np.nonzero((windows[..., :-1] == suffix[:, None]).all(-1))
    scores[rows, windows[rows, places, -1]] = -np.inf


def force(scores: np.ndarray, tokens: Sequence[int]) -> None:
    """Set scores [rows, vocabulary] of some tokens to 0, all others to -inf."""
    scores.fill(-np.inf)
    scores[:, list(tokens)] = 0
