"""Decoding of one window: beam search or sampling, and further attempts at higher temperatures."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from .....runtime.base.dataclass import dataclass
from ....generation.beam_search import Beams, Limits, beam_search, log_totals
from ....generation.kv_cache import Cache
from ....generation.sampling import Sampler, Sampling
from ....preprocess.audio.log_mel import LogMel
from ....seq2seq.cross_language_model import CrossLanguageModel
from ....seq2seq.exported_decoder import ExportedDecoder
from ....seq2seq.generation_settings import GenerationSettings
from ....tokenizer import Tokenizer
from .options import TranscriptionOptions
from .speech_tokens import SpeechTokens, unspoken
from .timestamp_rules import TimestampRules

Source = Mapping[str, np.ndarray]
"""The inputs that a decoder has of a window."""


class Recognizer(Protocol):
    """The model interface that a transcription needs; see `SpeechModel`."""

    decoder: CrossLanguageModel | ExportedDecoder

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def tokens(self) -> SpeechTokens: ...
    @property
    def settings(self) -> GenerationSettings: ...
    @property
    def max_length(self) -> int: ...
    @property
    def log_mel(self) -> LogMel: ...
    def encode(
        self, input_features: np.ndarray, attention_mask: None = None, activations: str = "f32"
    ) -> tuple[np.ndarray, Source]: ...
    def attention(self, ids: Sequence[int], source: Source) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class DecodedWindow:
    """The text of a window.

    Attributes:
        tokens: without the end token.
        text: without timestamps.
        mean_logprob: mean log probability of the tokens, the end token included.
        no_speech: probability that nothing is said; 0 for models that do not tell.
        temperature: of the attempt.
        compression_ratio: bytes of the text by bytes that zlib makes of them.
    """

    tokens: list[int]
    text: str
    mean_logprob: float
    no_speech: float
    temperature: float
    compression_ratio: float


class WindowDecoder:
    """Decodes windows.

    Args:
        opening: tokens that a text starts with: start, language, task.
    """

    def __init__(self, model: Recognizer, opening: Sequence[int], options: TranscriptionOptions) -> None:
        self.model, self.opening, self.options = model, list(opening), options
        stated, tokens = model.settings.constraints, model.tokens
        blank = model.tokenizer.encode(" ", add_bos=False, add_eos=False)
        self._suppressed = (*(stated.suppressed or unspoken(model.tokenizer)), *tokens.suppressed)
        self._suppressed_at_begin = stated.suppressed_at_begin or (*blank, tokens.end)
        self._random_windows = 0

    def decode(self, source: Source, previous: Sequence[int]) -> DecodedWindow:
        """The text of a window: of the first attempt that is good enough, else of the most probable one.

        Args:
            previous: tokens of the text before.
        """
        tried: list[DecodedWindow] = []
        options = self.options
        for temperature in options.temperatures:
            made = self._attempt(source, previous, temperature)
            tried.append(made)
            if self._good_enough(made):
                return made
        limit = options.compression_ratio_threshold
        plain = [made for made in tried if limit is None or made.compression_ratio <= limit]
        best = max(plain or tried, key=lambda made: made.mean_logprob)
        return DecodedWindow(
            best.tokens, best.text, best.mean_logprob, best.no_speech, options.temperatures[-1], best.compression_ratio
        )

    def _good_enough(self, made: DecodedWindow) -> bool:
        options = self.options
        probable = options.logprob_threshold is None or made.mean_logprob >= options.logprob_threshold
        if not probable and options.no_speech_threshold is not None and made.no_speech > options.no_speech_threshold:
            return True
        ratio = options.compression_ratio_threshold
        return probable and (ratio is None or made.compression_ratio <= ratio)

    def is_silent(self, made: DecodedWindow) -> bool:
        """Whether nothing is said in a window."""
        options = self.options
        if options.no_speech_threshold is None or made.no_speech <= options.no_speech_threshold:
            return False
        return options.logprob_threshold is None or made.mean_logprob <= options.logprob_threshold

    def _attempt(self, source: Source, previous: Sequence[int], temperature: float) -> DecodedWindow:
        model, tokens = self.model, self.model.tokens
        most = model.max_length
        kept = list(previous[-(most // 2 - 1) :]) if tokens.previous is not None and previous else []
        before = [tokens.previous, *kept] if kept and tokens.previous is not None else []
        prompt = np.array([[*before, *self.opening]], np.int64)
        cache = model.decoder.start(1, source)
        first = len(before) + 1
        logits = model.decoder.advance(prompt[:, :first], cache)
        no_speech = 0.0 if tokens.no_speech is None else float(probabilities(logits)[0, tokens.no_speech])
        if prompt.shape[1] > first:
            logits = model.decoder.advance(prompt[:, first:], cache)
        rules = TimestampRules(
            tokens, self._suppressed, self._suppressed_at_begin, prompt.shape[1], self.options.timestamps
        )
        rules.apply(logits, prompt)
        longest = min(most // 2, most - prompt.shape[1])
        search = _Search(model, cache, rules, prompt, logits, longest)
        found, mean = (
            search.beams(self.options.beams)
            if temperature == 0
            else search.sampled(temperature, self.options.best_of, self._seed())
        )
        text = model.tokenizer.decode([token for token in found if token < tokens.end])
        return DecodedWindow(found, text, mean, no_speech, temperature, compression_ratio(text.strip()))

    def _seed(self) -> int:
        self._random_windows += 1
        return self.options.seed + self._random_windows - 1


class _Search:
    """One attempt: the cache after the prompt [1, length], and logits f32 [1, vocabulary] of the first token."""

    def __init__(
        self,
        model: Recognizer,
        cache: Cache,
        rules: TimestampRules,
        prompt: np.ndarray,
        logits: np.ndarray,
        longest: int,
    ) -> None:
        self._model, self._cache, self._rules = model, cache, rules
        self._prompt, self._logits, self._longest = prompt, logits, longest
        self._sequences = prompt

    def beams(self, count: int) -> tuple[list[int], float]:
        """The tokens of the best text, and their mean log probability."""
        if count == 1:
            return self._drawn(1, lambda logits: logits.argmax(1))
        end = self._model.tokens.end
        limits = Limits(self._prompt.shape[1] + self._longest, (end,))
        step = functools.partial(self._step, rows=count)
        chosen = Beams(count, 1.0, early_stopping=True)
        (found,) = beam_search(step, self._logits, self._prompt, chosen, limits, self._model.decoder.threads)
        best = found[0]
        return [token for token in best.tokens if token != end], best.score

    def sampled(self, temperature: float, count: int, seed: int) -> tuple[list[int], float]:
        """As `beams`, of several texts that are drawn."""
        sampler = Sampler(Sampling(temperature, top_k=0, top_p=1, min_p=0, seed=seed), count)
        return self._drawn(count, lambda logits: sampler.choose(logits, []))

    def _drawn(self, count: int, choose: Callable[[np.ndarray], np.ndarray]) -> tuple[list[int], float]:
        end = self._model.tokens.end
        logits = np.repeat(self._logits, count, 0)
        totals, lengths, ended = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, bool)
        generated: list[np.ndarray] = []
        for _ in range(self._longest):
            scale = log_totals(logits, self._model.decoder.threads)[:, 0]
            chosen = np.where(ended, end, choose(logits.copy()))
            totals += np.where(ended, 0, logits[np.arange(count), chosen] - scale)
            lengths += ~ended
            ended |= chosen == end
            if ended.all():
                break
            parents = np.zeros(count, np.int64) if count > 1 and not generated else None
            generated.append(chosen)
            logits = self._step(chosen, parents, rows=count)
        means = totals / np.maximum(lengths, 1)
        best = int(means.argmax())
        return [int(chosen[best]) for chosen in generated if chosen[best] != end], float(means[best])

    def _step(self, tokens: np.ndarray, parents: np.ndarray | None, *, rows: int) -> np.ndarray:
        """Logits after one more token of each row, by the rules."""
        sequences = self._sequences if parents is None else self._sequences[parents]
        if parents is not None:
            self._model.decoder.select(self._cache, parents, rows)
        self._sequences = np.concatenate([sequences, tokens[:, None]], 1)
        logits = self._model.decoder.advance(tokens[:, None], self._cache)
        self._rules.apply(logits, self._sequences)
        return logits


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row, f32 [rows, vocabulary]."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    found: np.ndarray = powers / powers.sum(1, keepdims=True)
    return found


def compression_ratio(text: str) -> float:
    """Bytes of a text by bytes that zlib makes of them."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
