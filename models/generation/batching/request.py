"""Requests to the engine, and handles from which their tokens are read."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from ....runtime.base.dataclass import dataclass
from ..generate import Generation
from ..sampling import Sampling
from ..token_constraints import Constraint

STOP, LENGTH, CANCELLED, ERROR = "stop", "length", "cancelled", "error"
"""Finish reasons: an end token or a stop string, the limit of tokens or the context, `Handle.cancel`, a failure."""


@dataclass(frozen=True)
class Request:
    """A generation request of one caller.

    Attributes:
        prompt_ids: tokens to continue; for an encoder-decoder, those of its source text.
        max_tokens: limit of generated tokens; None for what the context holds.
        sampling: how tokens are chosen.
        stop: strings that end the text and are left out of it.
        seed: of the random numbers, in place of the sampling's; None for that.
        choice: number of this request among those that share a seed; each has random numbers of its own.
        logit_bias: added to the logits of tokens.
        logprobs: alternatives whose log probabilities each event lists; 0 for no log probabilities at all.
        constraint: restricts the tokens; for one request only.
    """

    prompt_ids: Sequence[int]
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stop: Sequence[str] = ()
    seed: int | None = None
    choice: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int = 0
    constraint: Constraint | None = None


@dataclass(frozen=True)
class Logprobs:
    """Log probabilities by the model, before bias, penalties and temperature.

    Attributes:
        token: that of the chosen token.
        top: the most probable tokens with theirs, best first.
    """

    token: float
    top: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Event:
    """One generated token.

    Attributes:
        token: its id; the end token has an event, too.
        text: the text that is certain by now; empty while a character or a stop string may be incomplete.
        logprobs: None unless asked for.
    """

    token: int
    text: str
    logprobs: Logprobs | None = None


@dataclass
class Usage:
    """Tokens of a request.

    Attributes:
        cached_tokens: those of the prompt that were taken from earlier requests with the same prefix.
        drafted_tokens: proposed by speculative decoding.
        accepted_tokens: those of the completion that were proposed.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


class Handle:
    """A submitted request: iterating yields its events as they come, until `finish_reason` is set.

    Attributes:
        finish_reason: ``stop``, ``length``, ``cancelled`` or ``error``; None while the request waits or runs.
        error: what failed, with the reason ``error``.
        usage: counts of tokens.
        made: the sequence so far.
    """

    def __init__(self, request: Request, wake: Callable[[], None] = lambda: None) -> None:
        self.request = request
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self.usage = Usage(len(request.prompt_ids))
        self.made = Generation(list(request.prompt_ids))
        self.cancelled = False
        self._wake = wake
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._listener: Callable[[Event | None], object] | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._events.get()
            if event is None:
                self._events.put(None)
                return
            yield event

    def cancel(self) -> None:
        """End the request before its next token; a finished one stays as it is."""
        self.cancelled = True
        self._wake()

    def listen(self, listener: Callable[[Event | None], object]) -> None:
        """Call `listener` with each event instead of iterating, those so far at once, and with None at the end. Later
        calls come from the thread of the engine, which a listener must not hold up."""
        with self._lock:
            while not self._events.empty():
                listener(self._events.get())
            self._listener = listener

    def push(self, event: Event) -> None:
        """Append an event; called by the engine."""
        self._put(event)

    def _put(self, event: Event | None) -> None:
        with self._lock:
            (self._listener or self._events.put)(event)

    def finish(self, reason: str, error: Exception | None = None) -> None:
        """End the events; called by the engine."""
        self.finish_reason, self.error = reason, error
        self._put(None)

    def text(self) -> str:
        """The text of all events that are still to come. Raises `error` if the request fails."""
        text = "".join(event.text for event in self)
        if self.error is not None:
            raise self.error
        return text
