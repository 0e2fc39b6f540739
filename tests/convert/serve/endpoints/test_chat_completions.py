"""Answers are split into content and calls of tools, where special tokens begin calls too, which have no text."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.chat.tool_format import tool_format
from candle_convert.convert.serve.endpoints.chat_completions import Answers
from candle_convert.models.generation.batching.request import Event

TEXTS = ["<s>", "[TOOL_CALLS]", "[ARGS]", "get_weather", '{"city": ', '"Paris"}', "Let me look."]
SPECIAL = 3
"""Tokens before this one are special."""


class Vocabulary:
    texts = TEXTS

    def __len__(self):
        return len(TEXTS)

    def is_special(self, token):
        return token < SPECIAL


def answers(template, names=("get_weather",)):
    model = SimpleNamespace(model=SimpleNamespace(tokenizer=SimpleNamespace(vocabulary=Vocabulary())))
    return Answers(model, 1, None if template is None else tool_format(template), names)


def pushed(made, tokens):
    return [made.push(0, Event(token, "" if token < SPECIAL else TEXTS[token])) for token in tokens]


def test_a_call_of_special_tokens():
    made = answers("{{ '[TOOL_CALLS]' }}")
    assert pushed(made, [6, 1, 3, 2, 4, 5, 0]) == ["Let me look.", "", "", "", "", "", ""]
    rest, (call,) = made.finish(0)
    assert (rest, call.name, json.loads(call.arguments)) == ("", "get_weather", {"city": "Paris"})


def test_text_that_only_looks_like_a_call_is_sent_at_the_end():
    made = answers("{{ '[TOOL_CALLS]' }}")
    assert pushed(made, [1, 6]) == ["", ""]
    assert made.finish(0) == ("[TOOL_CALLS]Let me look.", [])


def test_a_call_of_a_tool_that_the_request_lacks_is_content():
    made = answers("{{ '[TOOL_CALLS]' }}", ["get_time"])
    pushed(made, [1, 3, 2, 4, 5, 0])
    assert made.finish(0) == ('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', [])


def test_without_tools_text_is_sent_at_once():
    made = answers(None)
    assert pushed(made, [1, 3, 6]) == ["", "get_weather", "Let me look."]
    assert made.finish(0) == ("", [])
