"""Runs of text: handles of one request, whose events are read without holding the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ...models.generation.batching.request import CANCELLED, ERROR, LENGTH, STOP, Event, Handle, Request
from ...models.generation.generate import Generation
from ...models.pipelines.multimodal.prompts.prompt_rules import Prompted
from ...runtime.base.units import counted
from .call import Call
from .job_queue import Abandoned, Job
from .requests.http_error import HTTPError, bad_request
from .served_model import ServedModel

Prompt = list[int] | Prompted
"""Token ids, with pictures and sounds for models that take them."""

LATE = -1
"""In place of the index of a handle: the time of the call is over."""


class TextRun:
    """Texts that one request asks for, running.

    Attributes:
        handles: one for each text.
    """

    def __init__(self, call: Call, model: ServedModel, requests: Sequence[tuple[Prompt, Request]]) -> None:
        """Start the texts. HTTPError 400 for prompts that are too long, 429 where too many requests wait."""
        self._call, self._cleanup = call, contextlib.ExitStack()
        self.handles: list[Handle] = []
        self._cleanup.enter_context(call.server.admitted(len(requests)))
        self._cleanup.callback(self._count_tokens)
        try:
            for prompt, request in requests:
                self.handles.append(_submitted(call, model, prompt, request))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancel what still runs."""
        for handle in self.handles:
            handle.cancel()
        self._cleanup.close()

    async def events(self) -> AsyncIterator[tuple[int, Event | None]]:
        """Pairs of the index of a handle and its next event, None at its end.

        Raises what a handle failed of, and HTTPError 504 where the time of the call is over.
        """
        loop, call = asyncio.get_running_loop(), self._call
        begun: float | None = loop.time()
        arrived: asyncio.Queue[tuple[int, Event | None]] = asyncio.Queue()

        def arrive(index: int, event: Event | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(arrived.put_nowait, (index, event))

        for index, handle in enumerate(self.handles):
            handle.listen(functools.partial(arrive, index))
        timer = loop.call_at(call.deadline, arrived.put_nowait, (LATE, None))
        left = len(self.handles)
        try:
            while left:
                index, event = await arrived.get()
                if index == LATE:
                    raise call.too_late()
                if begun is not None:
                    call.server.metrics.first_token.observe(loop.time() - begun)
                    begun = None
                if event is None:
                    left -= 1
                    _check_end(self.handles[index])
                yield index, event
        finally:
            timer.cancel()
            self.close()

    async def collected(self) -> list[list[Event]]:
        """All events of each text; stops where the client hangs up."""
        found: list[list[Event]] = [[] for _ in self.handles]

        async def collect() -> list[list[Event]]:
            async for index, event in self.events():
                if event is not None:
                    found[index].append(event)
            return found

        return await self._call.finished(asyncio.ensure_future(collect()), self.close)

    def usage(self, choices: int) -> dict[str, Any]:
        """OpenAI's object; a prompt that several choices continue counts once."""
        first = [handle.usage for handle in self.handles[::choices]]
        prompt, cached = sum(usage.prompt_tokens for usage in first), sum(usage.cached_tokens for usage in first)
        completion = sum(handle.usage.completion_tokens for handle in self.handles)
        drafted, accepted = (
            sum(getattr(handle.usage, f"{kind}_tokens") for handle in self.handles) for kind in ("drafted", "accepted")
        )
        return {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {
                "accepted_prediction_tokens": accepted, "rejected_prediction_tokens": drafted - accepted,
            },
        }  # fmt: skip

    def _count_tokens(self) -> None:
        for kind in ("prompt", "cached", "completion", "drafted", "accepted"):
            count = sum(getattr(handle.usage, f"{kind}_tokens") for handle in self.handles)
            self._call.server.metrics.tokens.labels(kind).inc(count)


def _check_end(handle: Handle) -> None:
    if handle.finish_reason == ERROR and handle.error is not None:
        raise handle.error
    if handle.finish_reason == CANCELLED:
        raise HTTPError(503, "the server stops", "stopping")


def _submitted(call: Call, model: ServedModel, prompt: Prompt, request: Request) -> Handle:
    if model.engine is not None:
        return model.engine.submit(request)
    if request.logprobs or request.logit_bias or request.constraint is not None:
        raise bad_request(f"the model {model.name} has no logprobs, logit_bias and response_format")
    handle = Handle(request, lambda: call.server.jobs.drop(job))
    context, length = model.context, len(request.prompt_ids)
    if context is not None and length >= context:
        raise bad_request(
            f"the prompt has {counted(length, 'token')}, the context {context:,}", code="context_length_exceeded"
        )

    def compute(items: list[Any], check: Callable[[], None]) -> list[Any]:
        _generate(model, prompt, handle)
        return items

    def end(future: Future[list[Any]]) -> None:
        if handle.finish_reason is None:
            handle.finish(CANCELLED)

    job = Job(None, [prompt], compute)
    job.future.add_done_callback(end)
    call.server.jobs.submit(job)
    return handle


def _generate(model: ServedModel, prompt: Prompt, handle: Handle) -> None:
    """Write the text of a prompt with pictures or sounds into a handle."""
    request = handle.request

    def on_text(row: int, text: str) -> None:
        if handle.cancelled:
            raise Abandoned
        handle.push(Event(-1, text))

    try:
        if handle.cancelled:
            raise Abandoned
        sampling = vars(dataclasses.replace(request.sampling, seed=request.seed))
        made: Generation = model.model.generate_batch(
            [prompt], max_tokens=request.max_tokens, stop=request.stop, context=model.context, on_text=on_text,
            **sampling,
        )[0]  # fmt: skip
    except Abandoned:
        handle.finish(CANCELLED)
    except Exception as error:  # the reader of the handle gets it
        handle.finish(ERROR, error)
    else:
        handle.usage.completion_tokens = len(made.tokens)
        handle.finish(STOP if made.reason in ("end", "stop") else LENGTH)
