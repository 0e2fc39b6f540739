"""OpenAI's chat completions: answers to messages, with calls of tools."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Container
from typing import Any

from starlette.responses import JSONResponse, Response

from ....models.generation.batching.grammar import Grammar
from ....models.generation.batching.request import STOP, Event
from ....models.generation.chat_template import prompt as chat_prompt
from ....models.generation.chat_template import writes_bos
from ..call import Call
from ..chat.messages import template_messages
from ..chat.tool_format import ToolCall, ToolFormat, tool_format
from ..endpoint import MODEL, Endpoint
from ..event_stream import EventStream
from ..generation_fields import FIELDS, UNUSED, include_usage, request_of
from ..requests.http_error import bad_request
from ..requests.request_fields import Anything, Either, Field, Flag, Many, Record, Text, integer
from ..served_model import CHAT, ServedModel
from ..text_run import Prompt, TextRun

NONE, AUTO, REQUIRED = "none", "auto", "required"
TEXT, JSON_OBJECT, JSON_SCHEMA = "text", "json_object", "json_schema"


def _check(values: dict[str, Any]) -> None:
    if values["top_logprobs"] is not None and not values["logprobs"]:
        raise bad_request("top_logprobs needs logprobs", "top_logprobs")
    if values["max_tokens"] is not None and values["max_completion_tokens"] is not None:
        raise bad_request("max_tokens and max_completion_tokens are one field", "max_tokens")
    _check_format(values)
    for number, tool in enumerate(values["tools"]):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if tool.get("type") != "function" or not isinstance(name, str):
            raise bad_request(f"tools[{number}] is not a function with a name", f"tools[{number}]")
        if not isinstance(function.get("parameters"), dict | None):
            raise bad_request(f"tools[{number}] has parameters that are no JSON schema", f"tools[{number}]")
    _check_choice(values)


def _check_choice(values: dict[str, Any]) -> None:
    chosen, names = values["tool_choice"], [tool["function"]["name"] for tool in values["tools"]]
    if chosen in (NONE, AUTO):
        return
    if chosen == REQUIRED:
        if not names:
            raise bad_request("tool_choice is required, but there are no tools", "tool_choice")
        return
    function = chosen.get("function") if isinstance(chosen, dict) and chosen.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in names:
        message = "tool_choice is none, auto, required, or a function with the name of one of the tools"
        raise bad_request(message, "tool_choice")


def _check_format(values: dict[str, Any]) -> None:
    name, given = "response_format", values["response_format"] or {"type": TEXT}
    kind = given.get("type")
    if kind not in (TEXT, JSON_OBJECT, JSON_SCHEMA):
        expected = ", ".join((TEXT, JSON_OBJECT, JSON_SCHEMA))
        raise bad_request(f"{name}.type is {str(kind)[:40]!r}, expected one of {expected}", f"{name}.type")
    stated = given.get(JSON_SCHEMA)
    if kind == JSON_SCHEMA and not (isinstance(stated, dict) and isinstance(stated.get("schema"), dict)):
        raise bad_request(f"{name}.{JSON_SCHEMA} has no schema", f"{name}.{JSON_SCHEMA}")
    if kind != TEXT and values["tools"] and values["tool_choice"] != NONE:
        raise bad_request("response_format and tools do not go together", name)


RECORD = Record(
    {
        "model": MODEL,
        "messages": Field(Many(Anything(), least=1, most=4096), required=True, help="The conversation so far."),
        "max_tokens": Field(integer(0), help="Limit of generated tokens (default: what the context holds)."),
        "max_completion_tokens": Field(integer(0), help="As max_tokens."),
        "logprobs": Field(Flag(), default=False, help="Whether to list log probabilities."),
        "top_logprobs": Field(integer(0, 20), help="Number of most likely tokens to list for each token."),
        "tools": Field(Many(Anything(), most=128), default=[], help="Functions that the model may call."),
        "tool_choice": Field(
            Either((Text((NONE, AUTO, REQUIRED)), Anything())),
            default=AUTO,
            help="none, auto, required, or a function.",
        ),
        "response_format": Field(Anything(), help="text, json_object, or json_schema with a schema."),
        **FIELDS,
    },
    unused=(*UNUSED, "parallel_tool_calls", "reasoning_effort", "modalities", "verbosity"),
    check=_check,
)


class Answers:
    """The texts of one request, split into content and calls of tools.

    Args:
        tools: the format of calls; None for requests without tools.
        names: of the request's tools; calls of others are content.
    """

    def __init__(self, model: ServedModel, count: int, tools: ToolFormat | None, names: Container[str]) -> None:
        self._tokenizer, self._tools, self._names = model.model.tokenizer, tools, names
        self._texts, self._sent = [""] * count, [0] * count

    def push(self, index: int, event: Event) -> str:
        """The content that is certain by now."""
        if self._tools is None:
            return event.text
        marker = self._marker(event.token)
        self._texts[index] += marker + event.text
        text, sent = self._texts[index], self._sent[index]
        begin = self._tools.beginning(text)
        end = len(text) if begin is None else begin
        self._sent[index] = max(sent, end)
        return text[sent:end]

    def finish(self, index: int) -> tuple[str, list[ToolCall]]:
        """The content that was held back, and the calls."""
        if self._tools is None:
            return "", []
        text, sent = self._texts[index], self._sent[index]
        found = self._tools.read(text)
        if found is None or not all(call.name in self._names for call in found[1]):
            return text[sent:], []
        content, calls = found
        return content[len(text[:sent].strip()) :], calls

    def _marker(self, token: int) -> str:
        """The text of a special token that begins a call or parts of one; which the text of an event lacks."""
        assert self._tools is not None
        vocabulary = self._tokenizer.vocabulary
        if not 0 <= token < len(vocabulary) or not vocabulary.is_special(token):
            return ""
        text: str = vocabulary.texts[token]
        return text if text in (*self._tools.begins, *self._tools.inner) else ""


async def chat(call: Call) -> Response:
    """The answer, as one object or as events."""
    values, model = call.values, call.model(CHAT)
    given = values["tools"] if values["tool_choice"] != NONE else []
    tools = _tools(model) if given else None
    prompt = await call.prepared(_prompt, model, values["messages"], given, call.server.settings.max_pictures)
    ids = prompt if isinstance(prompt, list) else prompt.ids
    limit = values["max_tokens"] if values["max_tokens"] is not None else values["max_completion_tokens"]
    probable = max(1, values["top_logprobs"] or 0) if values["logprobs"] else 0
    grammar: Grammar | None
    if tools is not None and values["tool_choice"] != AUTO:
        grammar = await call.prepared(_call_grammar, model, tools, given, values["tool_choice"])
    else:
        grammar = await call.prepared(_grammar, model, values["response_format"] or {})
    run = TextRun(
        call,
        model,
        [(prompt, request_of(values, model, ids, limit, choice, probable, grammar)) for choice in range(values["n"])],
    )
    answers = Answers(model, values["n"], tools, {tool["function"]["name"] for tool in given})
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": call.created, "model": model.name}
    if values["stream"]:
        return EventStream(_events(call, model, run, head, answers), run.close)
    choices = []
    for index, events in enumerate(await run.collected()):
        text = "".join([answers.push(index, event) for event in events])
        rest, calls = answers.finish(index)
        message: dict[str, Any] = {"role": "assistant", "content": text + rest, "refusal": None}
        if calls:
            message |= {"content": (text + rest).strip() or None, "tool_calls": [each.to_json() for each in calls]}
        choices.append({
            "index": index, "message": message, "finish_reason": _reason(run, index, calls),
            "logprobs": _logprobs(model, events, values),
        })  # fmt: skip
    usage = run.usage(values["n"])
    return JSONResponse({**head, "object": "chat.completion", "choices": choices, "usage": usage})


async def _events(
    call: Call, model: ServedModel, run: TextRun, head: dict[str, Any], answers: Answers
) -> AsyncIterator[dict[str, Any]]:
    head = {**head, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": index, "delta": delta, "finish_reason": reason, "logprobs": logprobs}]}

    for index in range(len(run.handles)):
        yield chunk(index, {"role": "assistant", "content": ""})
    async for index, event in run.events():
        if event is not None:
            text, logprobs = answers.push(index, event), _logprobs(model, [event], call.values)
            if text or logprobs is not None:
                yield chunk(index, {"content": text}, logprobs=logprobs)
            continue
        rest, calls = answers.finish(index)
        if rest:
            yield chunk(index, {"content": rest})
        for number, each in enumerate(calls):
            yield chunk(index, {"tool_calls": [{"index": number, **each.to_json()}]})
        yield chunk(index, {}, _reason(run, index, calls))
    if include_usage(call.values):
        yield {**head, "choices": [], "usage": run.usage(call.values["n"])}


def _tools(model: ServedModel) -> ToolFormat:
    templates = model.model.tokenizer.templates
    found = tool_format(templates.get("tool_use", templates["default"]))
    if found is None:
        raise bad_request(f"the chat template of {model.name} takes no tools", "tools")
    return found


def _prompt(model: ServedModel, given: list[dict[str, Any]], tools: list[dict[str, Any]], max_pictures: int) -> Prompt:
    messages = template_messages(given, media=model.multimodal, most=max_pictures)
    if model.multimodal:
        if tools:
            raise bad_request(f"the model {model.name} takes no tools", "tools")
        prompted: Prompt = model.model.chat_prompt(messages)
        return prompted
    tokenizer = model.model.tokenizer
    text = chat_prompt(tokenizer, messages, tools=tools or None)
    ids: list[int] = tokenizer.encode(text, add_bos=False if writes_bos(tokenizer, text) else None)
    return ids


def _grammar(model: ServedModel, given: dict[str, Any]) -> Grammar | None:
    kind = given.get("type", TEXT)
    if kind == TEXT:
        return None
    schema = given[JSON_SCHEMA]["schema"] if kind == JSON_SCHEMA else {"type": "object"}
    return model.grammars.json_schema(json.dumps(schema))


def _call_grammar(model: ServedModel, tools: ToolFormat, given: list[dict[str, Any]], chosen: Any) -> Grammar:
    """Text that is one call: of any tool, or the chosen one."""
    stated = [tool["function"] for tool in given]
    functions = {
        each["name"]: {"type": "object"} if each.get("parameters") is None else each["parameters"] for each in stated
    }
    if chosen != REQUIRED:
        name = chosen["function"]["name"]
        functions = {name: functions[name]}
    return model.grammars.grammar(tools.grammar(functions, model.grammars.marker))


def _reason(run: TextRun, index: int, calls: list[ToolCall]) -> str | None:
    reason = run.handles[index].finish_reason
    return "tool_calls" if calls and reason == STOP else reason


def _logprobs(model: ServedModel, events: list[Event], values: dict[str, Any]) -> dict[str, Any] | None:
    if not values["logprobs"]:
        return None
    count = values["top_logprobs"] or 0
    rows = [
        {
            **_scored(model, event.token, event.logprobs.token),
            "top_logprobs": [_scored(model, token, value) for token, value in event.logprobs.top[:count]],
        }
        for event in events
        if event.logprobs is not None
    ]
    return {"content": rows, "refusal": None}


def _scored(model: ServedModel, token: int, value: float) -> dict[str, Any]:
    text = model.model.tokenizer.decode([token], special=True)
    return {"token": text, "logprob": value, "bytes": list(text.encode())}


ENDPOINTS = (Endpoint("/v1/chat/completions", chat, "Answer messages.", CHAT, RECORD),)
