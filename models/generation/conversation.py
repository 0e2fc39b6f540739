"""Conversations: chat turns that reuse the KV cache, so that a turn computes only its new tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from .chat_template import prompt, writes_bos
from .generate import Generation, Timing, pieces
from .request import Request

if TYPE_CHECKING:
    from .kv_cache import Cache, EmbeddedPrompt
    from .language_model import LanguageModel
    from .sampling import Sampling


class Answers(Protocol):
    """Computes answers, and keeps states of earlier prompts as it sees fit."""

    def pieces(
        self, ids: list[int], max_tokens: int, timing: Timing, stopped: Callable[[], bool] | None
    ) -> Generator[tuple[int, str], None, list[Generation]]:
        """As `generate.pieces`, for one prompt."""
        ...


class Conversation:
    """A chat with a model.

    Args:
        system: system message or None.
        sampling: how tokens are chosen.
        max_tokens: limit per answer; None for what the context holds.
        stop: strings that end an answer.
        context: limit of the whole conversation in tokens; None for the model's context length.
        path: of the model, for error messages.
        answers: computes answers of texts in place of the model's runs of one token, such as `SpeculatedTurns`.

    Attributes:
        messages: objects with ``role`` and ``content``; without a chat template, all of them form one continued text.
        timing: of the last answer.
    """

    def __init__(
        self,
        model: LanguageModel,
        sampling: Sampling,
        *,
        system: str | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        context: int | None = None,
        path: str | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.model = model
        self.messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        self.timing = Timing()
        self._sampling = sampling
        self._system = system
        self._most = max_tokens
        self._stop = tuple(stop)
        self._context = context
        self._path = path
        self._cache: Cache | None = None
        self._seen: list[int] = []
        self._pictures: list[str] = []
        self._answers = answers

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template."""
        return bool(self.model.tokenizer.templates)

    @property
    def takes_pictures(self) -> bool:
        """Whether messages may have pictures."""
        return hasattr(self.model, "prompted")

    def clear(self) -> None:
        """Start over with only the system message."""
        self.messages = self.messages[: self._system is not None]
        self._cache, self._seen, self._pictures = None, [], []

    def add_picture(self, path: str) -> None:
        """Put a picture before the text of the next message. UsageError for models that take none."""
        if not self.takes_pictures:
            raise UsageError("E-LM-MODALITY", self._path, "the model takes no pictures")
        self._pictures.append(path)

    def say(self, text: str, stopped: Callable[[], bool] | None = None) -> Iterator[str]:
        """Add a user message and yield the answer in pieces; it joins the conversation when the iterator is exhausted.

        Args:
            stopped: polled before every token; True ends the answer.

        Raises UsageError if the conversation exceeds the context; the message is not added then.
        """
        parts = [{"type": "image", "image": path} for path in self._pictures]
        content = [*parts, {"type": "text", "text": text}] if parts else text
        messages = [*self.messages, {"role": "user", "content": content}]
        ids, embedded = self._prompt(messages)
        limit = self._context or self.model.context
        room = self._most if self._most is not None else 2**31 if limit is None else limit - len(ids)
        if room < 1:
            hint = "Start over with /clear, or pass a larger --context"
            raise UsageError(
                "E-LM-CONTEXT",
                self._path,
                "the conversation exceeds the context",
                expected=f"at most {counted(limit or 0, 'token')}",
                found=f"{len(ids):,}",
                hint=hint,
            )
        if self._answers is not None:
            self.timing = Timing()
            return self._stream_answer(self._answers.pieces(ids, room, self.timing, stopped), messages, None)
        cache = self._prefix_cache(ids, embedded)
        cache.prompt = embedded
        self.timing = Timing()
        request = Request([ids], room, self._sampling, self._stop, self._context)
        source = pieces(self.model, self.model.tokenizer, request, timing=self.timing, cache=cache, stopped=stopped)
        return self._stream_answer(source, messages, cache)

    def _stream_answer(
        self,
        source: Generator[tuple[int, str], None, list[Generation]],
        messages: list[dict[str, Any]],
        cache: Cache | None,
    ) -> Iterator[str]:
        self._pictures = []
        self._cache, self._seen = None, []  # the state of a cache is unknown after an interrupted run
        while True:
            try:
                yield next(source)[1]
            except StopIteration as done:
                made: Generation = done.value[0]
                break
        self._cache = cache
        self._seen = [] if cache is None else (made.prompt + made.tokens)[: cache.length]
        self.messages = [*messages, {"role": "assistant", "content": made.text}]

    def _prompt(self, messages: list[dict[str, Any]]) -> tuple[list[int], EmbeddedPrompt | None]:
        """Token ids, and their embeddings if pictures are among them."""
        if not any(isinstance(message["content"], list) for message in messages):
            return self._ids(messages), None
        model: Any = self.model
        prompted = model.chat_prompt(messages, self._path)
        return prompted.ids, model.embedded(np.array([prompted.ids], np.int64), None, prompted.arrays)

    def _ids(self, messages: list[dict[str, Any]]) -> list[int]:
        tokenizer = self.model.tokenizer
        if not self.has_template:
            return tokenizer.encode("".join(message["content"] for message in messages))
        text = prompt(tokenizer, messages, path=self._path)
        return tokenizer.encode(text, add_bos=False if writes_bos(tokenizer, text) else None)

    def _prefix_cache(self, ids: list[int], embedded: EmbeddedPrompt | None) -> Cache:
        """The cache of the common prefix of the last turn and this one, leaving at least one of `ids` to compute; an
        empty one if tokens of the prefix attend to later ones."""
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self._seen, ids[:-1], strict=False))
        common = sum(1 for _ in pairs)
        around = [] if embedded is None or not common else embedded.mask[0, common - 1 : common + 1].tolist()
        divided = len(set(around)) == 1 and around[0] > 1
        if self._cache is None or divided or not self.model.rewind(self._cache, common):
            return self.model.start(1)
        return self._cache
