"""Generating: tokens one after another, as text that is certain, until something ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.errors import FormatError, UsageError
from ...runtime.record import dataclass
from .sampling import Sampler, Sampling

if TYPE_CHECKING:
    from .cache import Cache
    from .model import LanguageModel
    from .tokenizer import Stream, Tokenizer

END, STOP, LENGTH, CONTEXT = "end", "stop", "length", "context"


@dataclass
class Generation:
    """What one sequence became.

    Attributes:
        prompt: ids.
        tokens: ids that were generated, the one that ended the text included.
        text: of these, up to where a stop string begins.
        reason: what ended it: ``end`` token, ``stop`` string, ``length`` asked for, or the ``context`` being full; empty while it goes on.
    """

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = ""


@dataclass
class Timing:
    """Seconds that prompts and generation took, and the tokens of each, padding left out."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    generated_tokens: int = 0
    generated_seconds: float = 0.0

    def to_json(self) -> dict[str, float]:
        """All of it, with tokens per second."""
        return {
            "prompt_tokens": self.prompt_tokens, "prompt_seconds": self.prompt_seconds,
            "prompt_per_second": self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0,
            "generated_tokens": self.generated_tokens, "generated_seconds": self.generated_seconds,
            "generated_per_second": self.generated_tokens / self.generated_seconds if self.generated_seconds else 0.0,
        }  # fmt: skip


class Stops:
    """Finds stop strings in text that comes in pieces; what may be the beginning of one is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = [string for string in strings if string]
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Text that is certain, and whether a stop string follows it."""
        self._held += text
        found = [place for string in self.strings if (place := self._held.find(string)) >= 0]
        if found:
            return self._held[: min(found)], True
        keep = max((length for string in self.strings for length in range(1, len(string)) if self._held.endswith(string[:length])), default=0)
        certain, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return certain, False

    def finish(self) -> str:
        """What is held back, when nothing follows."""
        held, self._held = self._held, ""
        return held


class Writer:
    """The text of one sequence."""

    def __init__(self, made: Generation, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self.made = made
        self._stream: Stream = tokenizer.stream(before=made.prompt)
        self._stops = Stops(stop)
        self._ends = tokenizer.ends
        self._given = 0

    def push(self, token: int) -> None:
        """Take a token."""
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
        """End the text."""
        text, stopped = self._stops.push(self._stream.finish())
        self.made.text += text
        if not stopped:
            self.made.text += self._stops.finish()
        self.made.reason = STOP if stopped else reason

    def taken(self) -> str:
        """The text that has come since the last call."""
        begin, self._given = self._given, len(self.made.text)
        return self.made.text[begin:]


def prefill(model: LanguageModel, prompts: Sequence[Sequence[int]], *, there: bool = False) -> tuple[Any, Cache]:
    """The logits [batch, vocabulary] behind each prompt, and the cache; shorter prompts are padded on the left.

    With `there` they stay on the device, [batch, length, vocabulary].
    """
    advance = model.advance_there if there else model.advance
    longest = max(map(len, prompts))
    ids, mask = np.zeros((len(prompts), longest), np.int64), np.zeros((len(prompts), longest), np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    cache = model.start(len(prompts))
    return advance(ids, cache, mask), cache


def tokens(
    model: LanguageModel, prompts: Sequence[Sequence[int]], sampling: Sampling, timing: Timing | None = None, vocabulary: int | None = None,
    cache: Cache | None = None,
) -> Iterator[np.ndarray]:
    """The next tokens of all sequences, int64 [batch], again and again. Logits from `vocabulary` on are of no tokens.

    Args:
        cache: of the first tokens of the only prompt, at least one of which it has not seen.
    """
    timing = timing or Timing()
    seen = [list(prompt) for prompt in prompts]
    remote = model.sampler(sampling, len(prompts), vocabulary)
    sampler = Sampler(sampling, len(prompts)) if remote is None else remote
    advance = model.advance if remote is None else model.advance_there
    began = time.perf_counter()
    before = 0 if cache is None else cache.length
    if cache is None:
        logits, cache = prefill(model, prompts, there=remote is not None)
    else:
        logits = advance(np.array([prompts[0][before:]], np.int64), cache)
    timing.prompt_tokens, timing.prompt_seconds = sum(map(len, prompts)) - before, time.perf_counter() - began
    while True:
        began = time.perf_counter()
        chosen = sampler.choose(logits[:, :vocabulary] if remote is None else logits, seen)
        for row, token in zip(seen, chosen, strict=True):
            row.append(int(token))
        timing.generated_seconds += time.perf_counter() - began
        timing.generated_tokens += len(prompts)
        yield chosen
        began = time.perf_counter()
        logits = advance(chosen[:, None], cache)
        timing.generated_seconds += time.perf_counter() - began


def generate(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], *,
    on_text: Callable[[int, str], None] | None = None, **request: Any,
) -> list[Generation]:
    """Continue prompts side by side; arguments as of `pieces`.

    Args:
        on_text: is given the number of a sequence and text that is certain.
    """
    source = pieces(model, tokenizer, prompts, **request)
    while True:
        try:
            row, text = next(source)
        except StopIteration as done:
            made: list[Generation] = done.value
            return made
        if on_text is not None:
            on_text(row, text)


def pieces(
    model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], *, max_tokens: int, sampling: Sampling,
    stop: Sequence[str] = (), context: int | None = None, timing: Timing | None = None, cache: Cache | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Generator[tuple[int, str], None, list[Generation]]:
    """Continue prompts side by side: numbers of sequences with text that is certain, as it comes; the return value is what they became.

    The arguments are checked at once, before the first piece is asked for.

    Args:
        prompts: ids of each; at least one.
        max_tokens: of each sequence.
        stop: texts that end a sequence and are left out; they may span tokens.
        context: tokens of a sequence, its prompt included; None for the model's own, where it has one.
        timing: is filled in.
        cache: has seen the first tokens of the only prompt.
        stopped: asked before every token; True ends all sequences with the reason ``stop``.
    """
    _check(model, tokenizer, prompts)
    context = context or model.context
    rooms = [max_tokens if context is None else min(max_tokens, context - len(prompt)) for prompt in prompts]
    if context is not None and min(rooms) < 0:
        longest = max(map(len, prompts))
        raise UsageError("E-LM-CONTEXT", None, "the prompt is longer than the context", expected=f"{context:,} tokens", found=f"{longest:,}",
                         hint="Shorten it, or give a longer --context")  # fmt: skip
    source = tokens(model, prompts, sampling, timing, len(tokenizer), cache)
    return _written(source, [Writer(Generation(list(prompt)), tokenizer, stop) for prompt in prompts], rooms, max_tokens, stopped)


def _written(
    source: Iterator[np.ndarray], writers: list[Writer], rooms: list[int], max_tokens: int, stopped: Callable[[], bool] | None
) -> Generator[tuple[int, str], None, list[Generation]]:
    for writer, room in zip(writers, rooms, strict=True):
        if not room:
            writer.finish(CONTEXT if max_tokens else LENGTH)
    while not all(writer.made.reason for writer in writers):
        if stopped is not None and stopped():
            for writer in writers:
                if not writer.made.reason:
                    writer.finish(STOP)
        else:
            chosen = next(source)
            for row, (writer, room) in enumerate(zip(writers, rooms, strict=True)):
                if not writer.made.reason:
                    writer.push(int(chosen[row]))
                    if not writer.made.reason and len(writer.made.tokens) == room:
                        writer.finish(LENGTH if room == max_tokens else CONTEXT)
        for row, writer in enumerate(writers):
            if text := writer.taken():
                yield row, text
    return [writer.made for writer in writers]


def _check(model: LanguageModel, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]]) -> None:
    if not prompts or not all(prompts):
        raise UsageError("E-LM-PROMPT", None, "the prompt has no tokens", hint="Give a prompt that is not empty")
    if model.vocabulary is not None and len(tokenizer) > model.vocabulary:
        raise FormatError(
            "E-LM-VOCABULARY", None, "the tokenizer has more tokens than the model's embedding has rows",
            expected=f"at most {model.vocabulary:,}", found=f"{len(tokenizer):,}", hint="Is this tokenizer this model's?",
        )  # fmt: skip
