"""A running request: chooses its tokens from logits, writes its text and decides when it ends."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ...tokenizer import Tokenizer
from ..generate import CONTEXT, TextStream
from ..generate import LENGTH as LIMIT
from ..sampling import Drafted, Sampler, largest
from .request import LENGTH, STOP, Event, Handle, Logprobs
from .rows import Start


class Running:
    """One request in a row.

    Args:
        context: most tokens, the prompt included.
        batched: whether the last token of the prompt is computed together with the tokens of other requests.

    Attributes:
        tokens: those of the prompt and the generated ones.
        pending: tokens of the prompt that a run of the row alone has yet to append.
    """

    def __init__(
        self, handle: Handle, row: int, start: Start, context: int | None, tokenizer: Tokenizer, *, batched: bool
    ) -> None:
        request = handle.request
        self.handle, self.row = handle, row
        self.tokens = list(start.tokens)
        self.pending = self.tokens[start.cached : -1 if batched else None]
        handle.usage.cached_tokens = start.cached
        self._limits, self._begun = start.limits, len(start.tokens)
        sampling = request.sampling
        if request.seed is not None:
            sampling = dataclasses.replace(sampling, seed=request.seed)
        self._sampler = Sampler(sampling, 1, request.choice)
        self._known = len(tokenizer)
        self._stream = TextStream(handle.made, tokenizer, request.stop, before=None if start.is_text else ())
        room = None if context is None else context - len(self.tokens)
        longest = None if start.limits is None else start.limits.max_length - self._begun
        limits = [limit for limit in (request.max_tokens, room, longest) if limit is not None]
        self._limit = min(limits) if limits else None
        self._bias = None
        if request.logit_bias:
            ids = np.fromiter(request.logit_bias, np.int64)
            self._bias = ids, np.array([request.logit_bias[token] for token in ids.tolist()], np.float32)

    @property
    def left(self) -> int | None:
        """Tokens that may follow; None for no limit."""
        return None if self._limit is None else self._limit - len(self._stream.made.tokens)

    def choose(self, logits: np.ndarray, drafted: Drafted | None = None) -> bool:
        """Emit the next token; False once the request has ended.

        Args:
            logits: f32 [vocabulary], overwritten.
            drafted: the proposed token.
        """
        request, made = self.handle.request, self._stream.made
        logits = logits[: self._known]
        raw = logits.copy() if request.logprobs else logits
        if self._limits is not None:
            self._limits.constraints.apply(
                logits[None],
                np.array([self.tokens]),
                prompt=self._begun,
                max_length=self._limits.max_length,
                ends=self._limits.ends,
            )
        if self._bias is not None:
            logits[self._bias[0]] += self._bias[1]
        if request.constraint is not None:
            request.constraint.apply(logits)
        token = int(self._sampler.choose(logits[None], [self.tokens], drafted)[0])
        self.tokens.append(token)
        self._stream.push(token)
        if request.constraint is not None and not made.reason:
            request.constraint.accept(token)
        if not made.reason and self._limit is not None and len(made.tokens) >= self._limit:
            self._stream.finish(LIMIT if len(made.tokens) == request.max_tokens else CONTEXT)
        self.handle.usage.completion_tokens += 1
        probabilities = logprobs(raw, token, request.logprobs) if request.logprobs else None
        self.handle.push(Event(token, self._stream.take_text(), probabilities))
        return not made.reason

    @property
    def finish_reason(self) -> str:
        """Why the request has ended."""
        return LENGTH if self._stream.made.reason in (LIMIT, CONTEXT) else STOP


def logprobs(logits: np.ndarray, token: int, count: int) -> Logprobs:
    """Log probabilities of a token and of the `count` most probable ones."""
    top = logits.max()
    total = float(top) + math.log(np.exp(logits - top).sum(dtype=np.float64))
    best = largest(logits, min(count, len(logits)))
    return Logprobs(float(logits[token]) - total, [(int(one), float(logits[one]) - total) for one in best])
