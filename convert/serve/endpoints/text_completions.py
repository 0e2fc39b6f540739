"""OpenAI's completions: texts that continue prompts."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response

from ....models.generation.batching.request import Event
from ..call import Call
from ..endpoint import MODEL, Endpoint
from ..event_stream import EventStream
from ..generation_fields import FIELDS, UNUSED, include_usage, request_of
from ..requests.http_error import bad_request
from ..requests.request_fields import Either, Field, Flag, Many, Record, Text, integer
from ..served_model import GENERATE, ServedModel
from ..text_run import TextRun

MAX_PROMPTS = 64
TOKEN = integer(0, 2**31 - 1)
IDS = Many(TOKEN, least=1, most=2**17)


def _check(values: dict[str, Any]) -> None:
    if values["echo"] and values["logprobs"] is not None:
        raise bad_request("echo and logprobs do not go together: prompts have no log probabilities", "echo")


RECORD = Record(
    {
        "model": MODEL,
        "prompt": Field(
            Either((Text(), IDS, Many(Text(), 1, MAX_PROMPTS), Many(IDS, 1, MAX_PROMPTS))),
            required=True,
            help="A text, token ids, or a list of either.",
        ),
        "max_tokens": Field(integer(0), default=16, help="Limit of generated tokens of each text."),
        "echo": Field(Flag(), default=False, help="Whether the prompt begins each text."),
        "logprobs": Field(integer(0, 20), help="Number of most likely tokens to list for each token."),
        **FIELDS,
    },
    unused=UNUSED,
    check=_check,
)


async def complete(call: Call) -> Response:
    """The answer, as one object or as events."""
    values, model = call.values, call.model(GENERATE)
    given = values["prompt"]
    prompts = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    encode = model.model.tokenizer.encode_source
    encoded = [prompt if isinstance(prompt, list) else await call.prepared(encode, prompt) for prompt in prompts]
    probable = 0 if values["logprobs"] is None else max(1, values["logprobs"])
    run = TextRun(
        call,
        model,
        [
            (ids, request_of(values, model, ids, values["max_tokens"], choice, probable))
            for ids in encoded
            for choice in range(values["n"])
        ],
    )
    echoed = [_echo(model, prompt) if values["echo"] else "" for prompt in prompts for _ in range(values["n"])]
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": call.created, "model": model.name}
    if values["stream"]:
        return EventStream(_events(call, model, run, head, echoed), run.close)
    found = await run.collected()
    choices = [
        {
            "index": index,
            "text": echo + "".join(event.text for event in events),
            "finish_reason": run.handles[index].finish_reason,
            "logprobs": _logprobs(model, events, values["logprobs"]),
        }
        for index, (echo, events) in enumerate(zip(echoed, found, strict=True))
    ]
    return JSONResponse({**head, "choices": choices, "usage": run.usage(values["n"])})


async def _events(
    call: Call, model: ServedModel, run: TextRun, head: dict[str, Any], echoed: list[str]
) -> AsyncIterator[dict[str, Any]]:
    def chunk(index: int, text: str, events: list[Event], reason: str | None = None) -> dict[str, Any]:
        logprobs = _logprobs(model, events, call.values["logprobs"]) if events else None
        return {**head, "choices": [{"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}]}

    for index, echo in enumerate(echoed):
        if echo:
            yield chunk(index, echo, [])
    async for index, event in run.events():
        if event is None:
            yield chunk(index, "", [], run.handles[index].finish_reason)
        elif event.text or event.logprobs is not None:
            yield chunk(index, event.text, [event])
    if include_usage(call.values):
        yield {**head, "choices": [], "usage": run.usage(call.values["n"])}


def _echo(model: ServedModel, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else model.model.tokenizer.decode(prompt)


def _logprobs(model: ServedModel, events: list[Event], count: int | None) -> dict[str, Any] | None:
    """OpenAI's older form: parallel lists."""
    if count is None:
        return None
    tokenizer = model.model.tokenizer

    def text(token: int) -> str:
        return tokenizer.decode([token], special=True)

    stated = [(event.token, event.logprobs) for event in events if event.logprobs is not None]
    tokens = [text(token) for token, _ in stated]
    ends = list(itertools.accumulate(map(len, tokens)))
    return {
        "tokens": tokens,
        "token_logprobs": [logprobs.token for _, logprobs in stated],
        "top_logprobs": [{text(token): value for token, value in logprobs.top[:count]} for _, logprobs in stated],
        "text_offset": [end - len(token) for end, token in zip(ends, tokens, strict=True)],
    }


ENDPOINTS = (Endpoint("/v1/completions", complete, "Continue a text.", GENERATE, RECORD),)
