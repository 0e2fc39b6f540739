"""Perplexity and KL divergence of a language model on a text, computed as in llama-perplexity.

Each piece of the text is read from its start; the second half of its tokens is scored, so that every one has some text
before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ..console.progress import NoProgress, Progress
from ..load.vocabulary_check import check_vocabulary

if TYPE_CHECKING:
    from ...models.generation.language_model import LanguageModel

MANY = 1 << 18
"""Tokens of a vocabulary whose size is not known."""
LOGITS = 1 << 25
"""Logits of one run."""
MAX_SCORED_LOGITS = 1 << 21
"""Logits that are looked at at once."""


@dataclass(frozen=True)
class Estimate:
    """A figure, and its standard error where it is a mean or made of means."""

    metric: str
    value: float
    error: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


@dataclass
class Scores:
    """The contribution of each scored token.

    Attributes:
        losses: negative log-likelihood of the token that follows, in nats; others: the other model's.
        divergences: Kullback-Leibler divergence of the predictions from the other model's, in nats.
        agreed: whether both models find the same token likeliest.
        shifts: probability of the token that follows, less the other model's.
    """

    losses: list[np.ndarray] = field(default_factory=list)
    others: list[np.ndarray] = field(default_factory=list)
    divergences: list[np.ndarray] = field(default_factory=list)
    agreed: list[np.ndarray] = field(default_factory=list)
    shifts: list[np.ndarray] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Tokens so far."""
        return sum(map(len, self.losses))

    def add(self, ours: np.ndarray, other: np.ndarray | None, targets: np.ndarray) -> None:
        """Count logits [tokens, vocabulary] of one model or both."""
        rows = np.arange(len(targets))
        predicted = log_softmax(ours)
        self.losses.append(-predicted[rows, targets].astype(np.float64))
        if other is None:
            return
        reference = log_softmax(other)
        likely = np.exp(reference)
        self.others.append(-reference[rows, targets].astype(np.float64))
        self.divergences.append(np.where(likely > 0, likely * (reference - predicted), 0).sum(1, dtype=np.float64))
        self.agreed.append(ours.argmax(1) == other.argmax(1))
        self.shifts.append(np.exp(-self.losses[-1]) - np.exp(-self.others[-1]))

    def extend(self, others: Scores) -> None:
        """Count the tokens that follow, scored elsewhere."""
        for name, arrays in vars(others).items():
            getattr(self, name).extend(arrays)

    def estimates(self) -> list[Estimate]:
        """The figures of all tokens."""
        losses = np.concatenate(self.losses)
        found = [_perplexity("ppl", losses)]
        if self.others:
            others, divergences = np.concatenate(self.others), np.concatenate(self.divergences)
            agreed, shifts = np.concatenate(self.agreed).astype(np.float64), np.concatenate(self.shifts)
            found += [
                _perplexity("ppl of the other", others),
                Estimate("ln(ppl / ppl of the other)", *_mean(losses - others)),
                Estimate("kld", *_mean(divergences)),
                *(
                    Estimate(f"kld, {share:g} %", float(np.percentile(divergences, share)))
                    for share in (50, 90, 99, 99.9)
                ),
                Estimate("kld, largest", float(divergences.max())),
                Estimate("same top token, %", *(100 * number for number in _mean(agreed))),
                Estimate("probability shift, mean %", *(100 * number for number in _mean(shifts))),
                Estimate("probability shift, rms %", 100 * float(np.sqrt(np.mean(shifts**2)))),
            ]
        return found


def score(
    model: LanguageModel,
    pieces: Sequence[np.ndarray],
    other: LanguageModel | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Run the model, and another one, over pieces of text (int64 ids)."""
    _check(pieces, model, other)
    progress, scores = progress or NoProgress(), Scores()
    progress.phase("scoring")
    progress.start(sum(map(len, pieces)), unit="tokens")
    try:
        for piece in pieces:
            ours = _logits(model, piece)
            theirs = None if other is None else _logits(other, piece)
            for targets, logits in ours:
                scores.add(logits, None if theirs is None else next(theirs)[1], targets)
            progress.advance(len(piece))
    finally:
        progress.finish()
    return scores


def _check(pieces: Sequence[np.ndarray], model: LanguageModel, other: LanguageModel | None) -> None:
    if other is not None and other.vocabulary != model.vocabulary:
        why = "the models have different vocabularies"
        raise UsageError("E-EVAL-VOCABULARY", None, why, expected=other.vocabulary, found=model.vocabulary)
    check_vocabulary(max(int(piece.max()) for piece in pieces), model.vocabulary)


def _logits(model: LanguageModel, piece: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Tokens of the second half but its first, and the logits [tokens, vocabulary] that predict them, some at a
    time."""
    cache, first = model.start(1), len(piece) // 2
    model.advance(piece[None, :first], cache)
    vocabulary = model.vocabulary or MANY
    length, rows = max(1, LOGITS // vocabulary), max(1, MAX_SCORED_LOGITS // vocabulary)
    for start in range(first, len(piece) - 1, length):
        stop = min(start + length, len(piece) - 1)
        found, cache = model.step(piece[None, start:stop], cache)
        for at in range(start, stop, rows):
            end = min(at + rows, stop)
            yield piece[at + 1 : end + 1], found[0, at - start : end - start]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities [tokens, vocabulary], f32."""
    shifted = logits.astype(np.float32, copy=False) - logits.max(1, keepdims=True)
    sums: np.ndarray = np.log(np.exp(shifted).sum(1, dtype=np.float64, keepdims=True)).astype(np.float32)
    shifted -= sums
    return shifted


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std() / np.sqrt(max(1, len(values) - 1)))


def _perplexity(name: str, losses: np.ndarray) -> Estimate:
    mean, error = _mean(losses)
    return Estimate(name, float(np.exp(mean)), float(np.exp(mean)) * error)
