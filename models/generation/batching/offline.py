"""Offline generation: a list of requests through an engine of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence

from .. import request as generation
from ..generate import Generation, Timing, check_prompts, written
from ..sampling import Sampling
from ..token_constraints import Grammar
from .engine import Engine
from .model_rows import BatchModel, RowModel
from .request import Request
from .rows import check_length
from .speculation import Speculation, check_draft, speculation_of

MAX_ROWS = 16
"""Requests that run at the same time."""


def pieces_together(
    model: RowModel,
    request: generation.Request,
    grammar: Grammar | None = None,
    draft: RowModel | None = None,
    speculate: int | None = None,
    timing: Timing | None = None,
) -> Generator[tuple[int, str], None, list[Generation]]:
    """Continue the prompts of a request of `LanguageModel.generate_batch` by the engine, yielding (index of the
    sequence, text); returns the finished sequences. The prompts are checked at once, before the first piece is
    requested.

    Args:
        grammar: that all texts follow.
        draft, speculate: as of `LanguageModel.generate`.
        timing: filled in.
    """
    speculation = speculation_of(draft, speculate)
    context = request.context or model.context
    requests = [
        Request(
            ids,
            request.max_tokens,
            request.sampling,
            request.stop,
            choice=index,
            constraint=None if grammar is None else grammar.constraint(),
        )
        for index, ids in enumerate(request.prompts)
    ]
    check_prompts(model.vocabulary, model.tokenizer, request.prompts)
    for each in requests:
        check_length(each, context)
    if draft is not None:
        check_draft(model, draft)
    return _pieces(model, requests, context, speculation, timing)


class SpeculatedTurns:
    """Answers of a conversation by an engine of one row: the caches of the model and of a draft keep its turns.

    Args:
        context: limit of the whole conversation in tokens; None for the model's.

    Raises UsageError where the model cannot speculate.
    """

    def __init__(
        self, model: RowModel, sampling: Sampling, stop: Sequence[str], context: int | None, speculation: Speculation
    ) -> None:
        self._sampling, self._stop = sampling, stop
        self._engine = Engine(model, 1, context or model.context, speculation=speculation)

    def pieces(
        self, ids: list[int], max_tokens: int, timing: Timing, stopped: Callable[[], bool] | None
    ) -> Generator[tuple[int, str], None, list[Generation]]:
        """As of `conversation.Answers`."""
        self._engine.timing = timing
        handle, given = self._engine.submit(Request(ids, max_tokens, self._sampling, self._stop)), ""
        try:
            for event in handle:
                given += event.text
                yield 0, event.text
                if stopped is not None and stopped():
                    return [dataclasses.replace(handle.made, text=given)]
        finally:
            handle.cancel()
        if handle.error is not None:
            raise handle.error
        return [handle.made]

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


def generate_all(
    model: BatchModel,
    requests: Sequence[Request],
    context: int | None,
    on_text: Callable[[int, str], None] | None = None,
    timing: Timing | None = None,
    speculation: Speculation | None = None,
) -> list[Generation]:
    """The sequences of requests, in their order. The first error of any ends them all.

    Args:
        context: most tokens of a request, its prompt included; None for no limit.
        on_text: called with the index of a request and its next text.
        timing: filled in.
        speculation: how tokens are proposed.
    """
    return written(_pieces(model, requests, context, speculation, timing), on_text)


def _pieces(
    model: BatchModel,
    requests: Sequence[Request],
    context: int | None,
    speculation: Speculation | None,
    timing: Timing | None,
) -> Generator[tuple[int, str], None, list[Generation]]:
    limits = [] if context is None else [context]
    if all(request.max_tokens is not None for request in requests):
        limits.append(max(len(request.prompt_ids) + (request.max_tokens or 0) for request in requests))
    engine = Engine(model, min(len(requests), MAX_ROWS), min(limits, default=None), speculation=speculation)
    try:
        handles = [engine.submit(request) for request in requests]
        for index, handle in enumerate(handles):
            for event in handle:
                if event.text:
                    yield index, event.text
            if handle.error is not None:
                raise handle.error
    finally:
        engine.close()
    if timing is not None:
        vars(timing).update(vars(engine.timing))
    return [handle.made for handle in handles]
