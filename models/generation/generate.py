"""Text generation: tokens are sampled one after another and streamed as text until a stop condition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.units import counted
from .sampling import Sampler, Sampling

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..tokenizer import Stream, Tokenizer
    from .kv_cache import Cache
    from .request import Request
    from .sampling_graph import DeviceSampler

END, STOP, LENGTH, CONTEXT = "end", "stop", "length", "context"


class CausalModel(Protocol):
    """The model interface that generation needs; see `LanguageModel`."""

    context: int | None
    vocabulary: int | None

    def start(self, batch: int) -> Cache: ...
    def advance(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> np.ndarray: ...
    def advance_on_device(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> Any: ...
    def sampler(self, sampling: Sampling, batch: int, vocabulary: int | None) -> DeviceSampler | None: ...


@dataclass
class Generation:
    """One generated sequence.

    Attributes:
        prompt: token ids.
        tokens: generated ids, the end token included.
        text: their text, up to a stop string.
        reason: why it ended: ``end`` token, ``stop`` string, ``length`` limit, or full ``context``; empty while it
            continues.
    """

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = ""


@dataclass
class Timing:
    """Seconds and tokens of prompt processing and generation, without padding and the compilation of kernels; of
    speculation, the proposed tokens and those that were accepted."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    generated_tokens: int = 0
    generated_seconds: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def to_json(self) -> dict[str, float]:
        """All fields, with tokens per second."""
        return {
            "prompt_tokens": self.prompt_tokens, "prompt_seconds": self.prompt_seconds,
            "prompt_per_second": self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0,
            "generated_tokens": self.generated_tokens, "generated_seconds": self.generated_seconds,
            "generated_per_second": self.generated_tokens / self.generated_seconds if self.generated_seconds else 0.0,
            "drafted_tokens": self.drafted_tokens, "accepted_tokens": self.accepted_tokens,
        }  # fmt: skip


class StopStringFilter:
    """Finds stop strings in streamed text; text that may start one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = [string for string in strings if string]
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Text to emit, and whether a stop string follows it."""
        self._held += text
        found = [place for string in self.strings if (place := self._held.find(string)) >= 0]
        if found:
            return self._held[: min(found)], True
        keep = max(
            (
                length
                for string in self.strings
                for length in range(1, len(string))
                if self._held.endswith(string[:length])
            ),
            default=0,
        )
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain, False

    def finish(self) -> str:
        """The text held back, once the stream has ended."""
        held, self._held = self._held, ""
        return held


class TextStream:
    """Streams the text of one sequence.

    Args:
        before: tokens that the text continues; None for those of the prompt. Negative ids, which stand for features,
            have no text.
    """

    def __init__(
        self, made: Generation, tokenizer: Tokenizer, stop: Sequence[str], before: Sequence[int] | None = None
    ) -> None:
        self.made = made
        known = made.prompt if before is None else before
        self._stream: Stream = tokenizer.stream([token for token in known if token >= 0])
        self._stops = StopStringFilter(stop)
        self._ends = tokenizer.ends
        self._given = 0

    def push(self, token: int) -> None:
        """Append a token."""
        made = self.made
        made.tokens.append(token)
        if token in self._ends:
            return self.finish(END)
        text, stopped = self._stops.push(self._stream.push(token))
        self.made.text += text
        if stopped:
            made.reason = STOP
        return None

    def finish(self, reason: str) -> None:
        """End the sequence with a reason."""
        text, stopped = self._stops.push(self._stream.finish())
        self.made.text += text
        if not stopped:
            self.made.text += self._stops.finish()
        self.made.reason = STOP if stopped else reason

    def take_text(self) -> str:
        """The text added since the last call."""
        begin, self._given = self._given, len(self.made.text)
        return self.made.text[begin:]


def prefill(model: CausalModel, prompts: Sequence[Sequence[int]], *, on_device: bool = False) -> tuple[Any, Cache]:
    """Process prompts: logits [batch, vocabulary] after each, and the cache; shorter prompts are padded on the left.

    With `on_device`, logits stay on the device, [batch, length, vocabulary].
    """
    advance = model.advance_on_device if on_device else model.advance
    longest = max(map(len, prompts))
    ids, mask = np.zeros((len(prompts), longest), np.int64), np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    cache = model.start(len(prompts))
    return advance(ids, cache, mask), cache


def tokens(
    model: CausalModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    timing: Timing | None = None,
    vocabulary: int | None = None,
    cache: Cache | None = None,
) -> Iterator[np.ndarray]:
    """Yield the next tokens of all sequences, int64 [batch], indefinitely. Logits at `vocabulary` and beyond are
    ignored.

    Args:
        cache: holds a proper prefix of the only prompt.
    """
    timing = timing or Timing()
    seen = [list(prompt) for prompt in prompts]
    remote = model.sampler(sampling, len(prompts), vocabulary)
    sampler = Sampler(sampling, len(prompts)) if remote is None else remote
    advance = model.advance if remote is None else model.advance_on_device
    watch = Stopwatch()
    before = 0 if cache is None else cache.length
    if cache is None:
        logits, cache = prefill(model, prompts, on_device=remote is not None)
    else:
        logits = advance(np.array([prompts[0][before:]], np.int64), cache)
    timing.prompt_tokens, timing.prompt_seconds = sum(map(len, prompts)) - before, watch.seconds
    while True:
        watch = Stopwatch()
        chosen = sampler.choose(logits[:, :vocabulary] if remote is None else logits, seen)
        for row, token in zip(seen, chosen, strict=True):
            row.append(int(token))
        timing.generated_seconds += watch.seconds
        timing.generated_tokens += len(prompts)
        yield chosen
        watch = Stopwatch()
        logits = advance(chosen[:, None], cache)
        timing.generated_seconds += watch.seconds


def generate(
    model: CausalModel,
    tokenizer: Tokenizer,
    request: Request,
    *,
    on_text: Callable[[int, str], None] | None = None,
    timing: Timing | None = None,
) -> list[Generation]:
    """Continue prompts as one batch.

    Args:
        on_text: called with the index of a sequence and its next text.
        timing: filled in.
    """
    return written(pieces(model, tokenizer, request, timing=timing), on_text)


def written(
    source: Generator[tuple[int, str], None, list[Generation]], on_text: Callable[[int, str], None] | None
) -> list[Generation]:
    """The sequences that `pieces` returns; `on_text` is called with each piece."""
    while True:
        try:
            row, text = next(source)
        except StopIteration as done:
            made: list[Generation] = done.value
            return made
        if on_text is not None:
            on_text(row, text)


def pieces(
    model: CausalModel,
    tokenizer: Tokenizer,
    request: Request,
    *,
    timing: Timing | None = None,
    cache: Cache | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Generator[tuple[int, str], None, list[Generation]]:
    """Continue prompts as one batch, yielding (index of the sequence, text); returns the finished sequences.

    The arguments are checked at once, before the first piece is requested.

    Args:
        timing: filled in.
        cache: holds a prefix of the only prompt.
        stopped: polled before every token; True ends all sequences with the reason ``stop``.
    """
    prompts, max_tokens, context = request.prompts, request.max_tokens, request.context or model.context
    check_prompts(model.vocabulary, tokenizer, prompts)
    limits = [max_tokens if context is None else min(max_tokens, context - len(prompt)) for prompt in prompts]
    if context is not None and min(limits) < 0:
        longest = max(map(len, prompts))
        raise UsageError(
            "E-LM-CONTEXT",
            None,
            "the prompt is longer than the context",
            expected=f"{counted(context, 'token')}",
            found=f"{longest:,}",
            hint="Shorten the prompt, or pass a larger --context",
        )
    source = tokens(model, prompts, request.sampling, timing, len(tokenizer), cache)
    return streamed(
        source,
        [TextStream(Generation(list(prompt)), tokenizer, request.stop) for prompt in prompts],
        limits,
        max_tokens,
        stopped,
    )


def streamed(
    source: Iterator[np.ndarray],
    writers: list[TextStream],
    limits: list[int],
    max_tokens: int,
    stopped: Callable[[], bool] | None = None,
) -> Generator[tuple[int, str], None, list[Generation]]:
    """Write the tokens [batch] of `source` until all sequences have ended, yielding as `pieces` does.

    Args:
        limits: most tokens of each sequence.
        max_tokens: the limit that the caller asked for.
    """
    for writer, room in zip(writers, limits, strict=True):
        if not room:
            writer.finish(CONTEXT if max_tokens else LENGTH)
    while not all(writer.made.reason for writer in writers):
        if stopped is not None and stopped():
            for writer in writers:
                if not writer.made.reason:
                    writer.finish(STOP)
        else:
            chosen = next(source)
            for row, (writer, room) in enumerate(zip(writers, limits, strict=True)):
                if not writer.made.reason:
                    writer.push(int(chosen[row]))
                    if not writer.made.reason and len(writer.made.tokens) == room:
                        writer.finish(LENGTH if room == max_tokens else CONTEXT)
        for row, writer in enumerate(writers):
            if text := writer.take_text():
                yield row, text
    return [writer.made for writer in writers]


def check_prompts(vocabulary: int | None, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]]) -> None:
    """UsageError for a prompt without tokens, FormatError for a tokenizer that does not fit the embedding of
    `vocabulary` rows."""
    if not prompts or not all(prompts):
        raise UsageError("E-LM-PROMPT", None, "the prompt has no tokens", hint="Pass a prompt that is not empty")
    if vocabulary is not None and len(tokenizer) > vocabulary:
        raise FormatError(
            "E-LM-VOCABULARY",
            None,
            "the tokenizer has more tokens than the model's embedding",
            expected=f"at most {vocabulary:,}",
            found=f"{len(tokenizer):,}",
            hint="Check that the tokenizer belongs to this model",
        )
