"""Sampling: from logits to the next token.

The steps are those of llama.cpp's default chain: repeat penalty, top-k, top-p, min-p, temperature, draw. Temperature 0
chooses the most probable token after the penalty. Random numbers are NumPy's PCG64: a seed reproduces text here, but
not llama.cpp's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError

BLOCK = 64
"""Block length of the two-level search for the largest logit."""
FIRST = 1024
"""Number of candidates tried first if top_k does not limit them."""


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling. The defaults are llama.cpp's.

    Attributes:
        temperature: divides the logits; 0 chooses the most probable token.
        top_k: only the k most probable tokens; 0 for all.
        top_p: only the most probable tokens whose probabilities reach this sum; 1 for all.
        min_p: only tokens with at least this fraction of the largest probability; 0 for all.
        repeat_penalty: positive logits of recent tokens are divided by it, others multiplied; 1 for none.
        repeat_last: number of recent tokens, the prompt's included; -1 for all.
        seed: of the random numbers; None for a different text every time.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        ranges: dict[str, tuple[float, float]] = {
            "temperature": (0, np.inf),
            "top_k": (0, np.inf),
            "top_p": (0, 1),
            "min_p": (0, 1),
            "repeat_penalty": (1e-6, 1e6),
            "repeat_last": (-1, np.inf),
            "seed": (0, np.inf),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                valid_range = f"{low:g} to {high:g}" if high < np.inf else f"{low:g} or more"
                raise UsageError(
                    "E-SAMPLE-RANGE",
                    None,
                    f"{name.replace('_', ' ')} is out of range",
                    expected=valid_range,
                    found=value,
                )


GREEDY = Sampling(temperature=0)


@dataclass(frozen=True)
class Drafted:
    """A proposed token.

    Attributes:
        token: its id.
        source: tokens and probabilities of the distribution that it was drawn from; None for one that was not drawn.
    """

    token: int
    source: tuple[np.ndarray, np.ndarray] | None = None


class Sampler:
    """Chooses the tokens of a batch. Each sequence has its own random numbers, independent of the rest of the batch.

    Args:
        first: number of the first sequence among those that share a seed.
    """

    def __init__(self, sampling: Sampling, batch: int, first: int = 0) -> None:
        self.sampling = sampling
        self.seed = int.from_bytes(os.urandom(4), "little") if sampling.seed is None else sampling.seed
        self._rows = range(first, first + batch)

    @functools.cached_property
    def _random(self) -> list[np.random.Generator]:
        return [np.random.Generator(np.random.PCG64([self.seed, row])) for row in self._rows]

    def choose(self, logits: np.ndarray, seen: Sequence[Sequence[int]], drafted: Drafted | None = None) -> np.ndarray:
        """The next token of each sequence, int64 [batch].

        Args:
            logits: f32 [batch, vocabulary], overwritten.
            seen: the tokens of each sequence so far.
            drafted: the proposed next token, which is chosen as often as the distribution allows.

        Raises UnsupportedError if the largest logit is not finite.
        """
        if self.sampling.repeat_penalty != 1:
            for row, tokens in zip(logits, seen, strict=True):
                penalize(row, tokens, self.sampling)
        chosen: np.ndarray = logits.argmax(1)
        best = np.take_along_axis(logits, chosen[:, None], 1)
        if not np.isfinite(best).all():
            raise not_finite(str(best[~np.isfinite(best)][0]))
        if self.sampling.temperature == 0:
            return chosen
        if drafted is not None and drafted.source is not None:
            return np.array(
                [
                    draw_drafted(row, self.sampling, drafted.token, drafted.source, random)
                    for row, random in zip(logits, self._random, strict=True)
                ],
                np.int64,
            )
        return np.array(
            [draw(row, self.sampling, random.random()) for row, random in zip(logits, self._random, strict=True)],
            np.int64,
        )


def not_finite(found: str) -> UnsupportedError:
    """The error for logits whose largest is not finite."""
    return UnsupportedError(
        "E-LM-NAN", None, "the model's largest logit is not finite", found=found,
        hint="Check the weights for damage with candle-convert check",
    )  # fmt: skip


def recent_tokens(tokens: Sequence[int], count: int) -> list[int]:
    """The last `count` of a sequence, all if it is negative, without negative ids, which stand for features."""
    return [token for token in (tokens if count < 0 else tokens[max(0, len(tokens) - count) :]) if token >= 0]


def penalize(logits: np.ndarray, tokens: Sequence[int], sampling: Sampling) -> None:
    """Apply the repeat penalty to logits in place."""
    index = np.unique(np.asarray(recent_tokens(tokens, sampling.repeat_last), np.int64))
    values = logits[index]
    logits[index] = np.where(
        values > 0, values / np.float32(sampling.repeat_penalty), values * np.float32(sampling.repeat_penalty)
    )


def draw(logits: np.ndarray, sampling: Sampling, number: float) -> int:
    """The token selected by a random number in [0, 1)."""
    tokens, scores = candidates(logits, sampling)
    with np.errstate(over="ignore"):  # a temperature near 0 makes infinite differences, whose weights are 0
        weights = np.exp((scores - scores[0]) / np.float64(sampling.temperature)).cumsum()
    return int(tokens[min(np.searchsorted(weights, number * weights[-1], side="right"), len(tokens) - 1)])


def distribution(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that can be drawn, most probable first, and their probabilities in f64."""
    tokens, scores = candidates(logits, sampling)
    with np.errstate(over="ignore"):  # as in `draw`
        weights = np.exp((scores - scores[0]) / np.float64(sampling.temperature))
    return tokens, weights / weights.sum()


def draw_drafted(
    logits: np.ndarray,
    sampling: Sampling,
    token: int,
    source: tuple[np.ndarray, np.ndarray],
    random: np.random.Generator,
) -> int:
    """A token distributed as by `draw`: the one drawn from `source`, tokens and probabilities, or, where it is
    rejected, one from what the two distributions differ by (Leviathan et al. 2023, algorithm 1)."""
    tokens, probabilities = distribution(logits, sampling)
    others = dict(zip(source[0].tolist(), source[1].tolist(), strict=True))
    own = float(probabilities[tokens == token].sum())
    if random.random() * others[token] < own:
        return token
    left = np.maximum(probabilities - np.array([others.get(each, 0.0) for each in tokens.tolist()]), 0).cumsum()
    if left[-1] <= 0:  # both distributions are equal up to rounding
        return token
    return int(tokens[min(np.searchsorted(left, random.random() * left[-1], side="right"), len(tokens) - 1)])


def candidates(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Candidate tokens, most probable first, and their logits in f64."""
    vocabulary = len(logits)
    limit = min(sampling.top_k or vocabulary, vocabulary)
    top, total = np.float64(0), 0.0
    if sampling.top_k == 0 and sampling.top_p < 1:
        top = np.float64(logits.max())
        total = float(np.exp(logits - np.float32(top)).sum(dtype=np.float64))
    count = limit if sampling.top_k else min(FIRST, limit)
    while True:
        tokens = largest(logits, count)
        scores = logits[tokens].astype(np.float64)
        kept = len(scores)
        enough = count == limit
        if sampling.top_p < 1:
            weights = np.exp(scores - scores[0])
            sums = weights.cumsum()
            wanted = sampling.top_p * (total or sums[-1])
            enough = enough or bool(sums[-1] >= wanted)
            kept = min(int(np.searchsorted(sums, wanted, side="left")) + 1, kept)
        if sampling.min_p > 0:
            likely = int(np.searchsorted(-scores, -(scores[0] + np.log(sampling.min_p)), side="right"))
            enough = enough or likely < len(scores)
            kept = min(kept, max(likely, 1))
        if enough:
            return tokens[:kept], scores[:kept]
        count = min(4 * count, limit)


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest values in descending order; equal values in ascending index order."""
    whole = len(values) // BLOCK * BLOCK
    if count * BLOCK >= whole:
        places = np.arange(len(values))
    else:
        tops = values[:whole].reshape(-1, BLOCK).max(1)
        least = np.partition(tops, len(tops) - count)[len(tops) - count]
        blocks = np.flatnonzero(~(tops < least))
        places = np.concatenate(
            [(blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1), np.arange(whole, len(values))]
        )
    held = values[places]
    if count < len(held):
        least = np.partition(held, len(held) - count)[len(held) - count]
        near = np.flatnonzero(~(held < least))
        places, held = places[near], held[near]
    order = np.argsort(-held, kind="stable")[:count]
    found: np.ndarray = places[order]
    return found
