"""Generation with an encoder-decoder: token by token as it streams, or by beam search."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import did_you_mean
from ...runtime.base.units import counted
from ..generation.beam_search import Beams, Hypothesis, Limits, beam_search
from ..generation.generate import LENGTH, Generation, TextStream, Timing, check_prompts, streamed
from ..generation.request import token_limit
from ..generation.sampling import Sampler, Sampling
from ..generation.token_constraints import TokenConstraints

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..generation.kv_cache import Cache
    from ..tokenizer import Tokenizer
    from .cross_language_model import CrossLanguageModel
    from .exported_decoder import ExportedDecoder
    from .generation_settings import GenerationSettings


class TextModel(Protocol):
    """The model interface that generation needs; see `EncoderDecoderModel`."""

    decoder: CrossLanguageModel | ExportedDecoder

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def settings(self) -> GenerationSettings: ...
    @property
    def positions(self) -> int | None: ...
    def start(self, input_ids: ArrayLike, attention_mask: ArrayLike, *, activations: str) -> Cache: ...


@dataclass(frozen=True)
class TextToText:
    """Options of `generate`; None for what the checkpoint states.

    Attributes:
        max_tokens, max_new_tokens: limit of generated tokens; two names for one option.
        beams, num_beams: hypotheses that are continued; two names for one option; 1 if the checkpoint states none.
        length_penalty, early_stopping: as of `Beams`.
        min_length: tokens before which a text does not end, the decoder's first one included.
        no_repeat_ngram_size: as of `TokenConstraints`.
        source_lang, target_lang: codes of languages, such as ``de``.
        stop: strings that end a text and are left out of it.
    """

    max_tokens: int | None = None
    max_new_tokens: int | None = None
    beams: int | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    min_length: int | None = None
    no_repeat_ngram_size: int | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    stop: Sequence[str] | str = ()


@dataclass(frozen=True)
class Request:
    """A generation request.

    Attributes:
        texts: ids of each text.
        start: token that the decoder starts from.
        beams: how hypotheses are compared; one for none.
        limits: when a text ends.
        sampling: how tokens are chosen with one beam.
        stop: strings that end a text.
    """

    texts: list[list[int]]
    start: int
    beams: Beams
    limits: Limits
    sampling: Sampling
    stop: list[str]

    @property
    def max_tokens(self) -> int:
        """Limit of generated tokens."""
        return self.limits.max_length - 1


def requested(model: TextModel, texts: Sequence[str | Sequence[int]], options: Mapping[str, Any]) -> Request:
    """A request for texts or ids. Raises as `EncoderDecoderModel.generate`."""
    own = {field.name for field in dataclasses.fields(TextToText)}
    known = own | {field.name for field in dataclasses.fields(Sampling)}
    if unknown := [name for name in options if name not in known]:
        hint = did_you_mean(unknown[0], (*known, "stream"), f"Options: {', '.join(sorted(known))}")
        raise UsageError("E-SAMPLE-OPTION", None, f"unknown option {unknown[0]!r}", hint=hint)
    chosen = TextToText(**{name: value for name, value in options.items() if name in own})
    sampling = Sampling(**{"temperature": 0.0, **{name: value for name, value in options.items() if name not in own}})
    settings = model.settings
    beams = _beams(chosen, settings.beams, sampling)
    tokenizer, source, target = model.tokenizer, chosen.source_lang, chosen.target_lang
    ids = [
        tokenizer.encode_source(text, source, target) if isinstance(text, str) else list(map(int, text))
        for text in texts
    ]
    start, constraints = settings.start, _constraints(chosen, settings.constraints)
    language = None if tokenizer.languages is None else tokenizer.languages.target(target)
    if tokenizer.languages is not None and language is not None:
        if tokenizer.languages.starts(start):
            start = language
        else:
            constraints = dataclasses.replace(constraints, forced_bos=language)
    check_prompts(model.decoder.vocabulary, tokenizer, ids)
    stop = [chosen.stop] if isinstance(chosen.stop, str) else list(chosen.stop)
    longest, most = max(map(len, ids)), model.positions
    if most is not None and longest > most:
        raise UsageError(
            "E-LM-CONTEXT",
            None,
            "the text is longer than the model's positions",
            expected=f"{counted(most, 'token')}",
            found=f"{longest:,}",
            hint="Shorten the text",
        )
    limits = Limits(_longest(chosen, model), settings.ends or tuple(model.tokenizer.ends), constraints)
    return Request(ids, start, beams, limits, sampling, stop)


def _beams(chosen: TextToText, stated: Beams, sampling: Sampling) -> Beams:
    if chosen.beams is not None and chosen.num_beams is not None and chosen.beams != chosen.num_beams:
        why = "beams and num_beams are one option"
        raise UsageError("E-SAMPLE-OPTION", None, why, expected=chosen.beams, found=chosen.num_beams)
    asked = chosen.num_beams if chosen.beams is None else chosen.beams
    count = asked if asked is not None else 1 if sampling.temperature else stated.count
    if count > 1 and sampling.temperature:
        raise UsageError("E-BEAMS", None, "beam search takes no temperature", hint="Use one beam, or temperature 0")
    penalty = stated.length_penalty if chosen.length_penalty is None else chosen.length_penalty
    early = stated.early_stopping if chosen.early_stopping is None else chosen.early_stopping
    return Beams(count, penalty, early)


def _constraints(chosen: TextToText, stated: TokenConstraints) -> TokenConstraints:
    given = {
        name: getattr(chosen, name)
        for name in ("min_length", "no_repeat_ngram_size")
        if getattr(chosen, name) is not None
    }
    return dataclasses.replace(stated, **given)


def _longest(chosen: TextToText, model: TextModel) -> int:
    stated, asked = model.settings.max_length, (chosen.max_tokens, chosen.max_new_tokens)
    longest = stated if asked == (None, None) and stated is not None else token_limit(*asked) + 1
    return longest if model.positions is None else min(longest, model.positions)


def pieces(
    model: TextModel, request: Request, *, timing: Timing | None = None
) -> Generator[tuple[int, str], None, list[Generation]]:
    """Yield (index of the text, next part of what is made of it); returns the finished texts."""
    timing = timing or Timing()
    writers = [TextStream(Generation(text), model.tokenizer, request.stop, before=()) for text in request.texts]
    if request.beams.count > 1:
        return _searched(model, request, writers, timing)
    tokens = next_tokens(model, request, timing)
    return streamed(tokens, writers, [request.max_tokens] * len(writers), request.max_tokens)


def next_tokens(model: TextModel, request: Request, timing: Timing) -> Iterator[np.ndarray]:
    """Yield the next tokens of all texts, int64 [batch], indefinitely."""
    logits, cache, sequences = _begun(model, request, timing)
    sampler = Sampler(request.sampling, len(sequences))
    constraints = request.limits.constraints
    while True:
        watch = Stopwatch()
        logits = _known(model, logits)
        if constraints != TokenConstraints():
            constraints.apply(
                logits, sequences, prompt=1, max_length=request.limits.max_length, ends=request.limits.ends
            )
        chosen = sampler.choose(logits, sequences.tolist() if request.sampling.repeat_penalty != 1 else [])
        sequences = np.concatenate([sequences, chosen[:, None]], 1)
        timing.generated_seconds += watch.seconds
        timing.generated_tokens += len(chosen)
        yield chosen
        watch = Stopwatch()
        logits = model.decoder.advance(chosen[:, None], cache)
        timing.generated_seconds += watch.seconds


def searched(model: TextModel, request: Request, timing: Timing) -> list[Hypothesis]:
    """The best hypothesis of each text."""
    logits, cache, sequences = _begun(model, request, timing)
    watch = Stopwatch()

    def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        if parents is not None:
            model.decoder.select(cache, parents, request.beams.count)
        timing.generated_tokens += len(tokens) // request.beams.count
        return scored(model.decoder.advance(tokens[:, None], cache))

    def scored(logits: np.ndarray) -> np.ndarray:
        logits[:, len(model.tokenizer) :] = -np.inf
        return logits

    found = beam_search(step, scored(logits), sequences, request.beams, request.limits, model.decoder.threads)
    timing.generated_seconds += watch.seconds
    return [best for best, *_ in found]


def _begun(model: TextModel, request: Request, timing: Timing) -> tuple[np.ndarray, Cache, np.ndarray]:
    """Logits [batch, vocabulary] after the decoder's first token, the cache, and the sequences so far."""
    watch = Stopwatch()
    longest = max(map(len, request.texts))
    ids = np.full((len(request.texts), longest), model.settings.pad, np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(request.texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    cache = model.start(ids, mask, activations="q8")
    sequences = np.full((len(ids), 1), request.start)
    logits = model.decoder.advance(sequences, cache)
    timing.prompt_tokens = sum(map(len, request.texts))
    timing.prompt_seconds = watch.seconds
    return logits, cache, sequences


def _known(model: TextModel, logits: np.ndarray) -> np.ndarray:
    """The logits of tokens that the tokenizer has."""
    return logits[:, : len(model.tokenizer)]


def _searched(
    model: TextModel, request: Request, writers: list[TextStream], timing: Timing
) -> Generator[tuple[int, str], None, list[Generation]]:
    for row, (writer, best) in enumerate(zip(writers, searched(model, request, timing), strict=True)):
        for token in best.tokens:
            if not writer.made.reason:
                writer.push(token)
        if not writer.made.reason:
            writer.finish(LENGTH)
        if text := writer.take_text():
            yield row, text
    return [writer.made for writer in writers]
