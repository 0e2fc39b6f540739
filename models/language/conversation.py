"""Conversations: turns with a model whose KV cache holds what was said, so that a turn costs only its new tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.errors import UsageError
from .chat import prompt, writes_bos
from .generating import Generation, Timing, pieces

if TYPE_CHECKING:
    from .cache import Cache
    from .model import LanguageModel
    from .sampling import Sampling


class Conversation:
    """Messages to and from a model.

    Args:
        system: the system's message, None for none.
        sampling: how tokens are chosen.
        max_tokens: of an answer, None for as many as the context holds.
        stop: texts that end an answer.
        context: tokens of the whole conversation, None for the model's own.
        path: of the model, for errors.

    Attributes:
        messages: objects with ``role`` and ``content``; without a chat template all of them are one text that goes on.
        timing: of the last answer.
    """

    def __init__(
        self, model: LanguageModel, sampling: Sampling, *, system: str | None = None, max_tokens: int | None = None, stop: Sequence[str] = (),
        context: int | None = None, path: str | None = None,
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

    @property
    def has_template(self) -> bool:
        """Whether the model comes with a chat template."""
        return bool(self.model.tokenizer.templates)

    def clear(self) -> None:
        """Begin again, with the system's message alone."""
        self.messages = self.messages[: self._system is not None]
        self._cache, self._seen = None, []

    def say(self, text: str, stopped: Callable[[], bool] | None = None) -> Iterator[str]:
        """Add a message and give the answer in pieces as it comes; it belongs to the conversation when the iterator has ended.

        Args:
            stopped: asked before every token whether to end the answer there.

        Raises UsageError where the conversation no longer fits the context; the message is not added then.
        """
        messages = [*self.messages, {"role": "user", "content": text}]
        ids = self._ids(messages)
        limit = self._context or self.model.context
        room = self._most if self._most is not None else 2**31 if limit is None else limit - len(ids)
        if room < 1:
            hint = "Begin again with /clear, or choose a larger --context"
            raise UsageError("E-LM-CONTEXT", self._path, "the conversation fills the context", expected=f"at most {limit:,} tokens",
                             found=f"{len(ids):,}", hint=hint)  # fmt: skip
        cache = self._reused(ids)
        self.timing = Timing()
        source = pieces(
            self.model, self.model.tokenizer, [ids], max_tokens=room, sampling=self._sampling, stop=self._stop, context=self._context,
            timing=self.timing, cache=cache, stopped=stopped,
        )  # fmt: skip
        return self._answered(source, messages, cache)

    def _answered(
        self, source: Generator[tuple[int, str], None, list[Generation]], messages: list[dict[str, Any]], cache: Cache
    ) -> Iterator[str]:
        self._cache, self._seen = None, []  # a cache whose run is cut short holds nothing that is known
        while True:
            try:
                yield next(source)[1]
            except StopIteration as done:
                made: Generation = done.value[0]
                break
        self._cache, self._seen = cache, (made.prompt + made.tokens)[: cache.length]
        self.messages = [*messages, {"role": "assistant", "content": made.text}]

    def _ids(self, messages: list[dict[str, Any]]) -> list[int]:
        tokenizer = self.model.tokenizer
        if not self.has_template:
            return tokenizer.encode("".join(message["content"] for message in messages))
        text = prompt(tokenizer, messages, path=self._path)
        return tokenizer.encode(text, add_bos=False if writes_bos(tokenizer, text) else None)

    def _reused(self, ids: list[int]) -> Cache:
        """The cache of the tokens that the last turn and this one have in common; at least one of `ids` is left to see."""
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self._seen, ids[:-1], strict=False))
        common = sum(1 for _ in pairs)
        if self._cache is None or not self.model.rewind(self._cache, common):
            return self.model.start(1)
        return self._cache
