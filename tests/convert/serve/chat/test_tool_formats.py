"""Calls of tools in the texts of models, as the model cards of their families show them, whole and in pieces."""

import json

import pytest

pytest.importorskip("starlette", reason="the server needs starlette, of the extra serve")
from candle_convert.convert.serve.chat.tool_format import ToolCall, tool_format
from candle_convert.tests.builders.byte_grammar import accepts

HERMES = "{% if tools %}<tools>...</tools> return <tool_call>{% endif %}"
MISTRAL = "{% if tools %}[AVAILABLE_TOOLS]{% endif %}{{ '[TOOL_CALLS]' }}"
LLAMA = "{% if builtin_tools %}{{ '<|python_tag|>' }}{% endif %}"
PARIS = ToolCall("get_weather", '{"city": "Paris"}')
ROME = ToolCall("get_weather", '{"city": "Rome"}')
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
CASES = [
    (HERMES, f"<tool_call>\n{CALL}\n</tool_call>", "", [PARIS]),
    (
        HERMES,
        f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL.replace('Paris', 'Rome')}\n</tool_call>",
        "I look.",
        [PARIS, ROME],
    ),
    (HERMES, f"<tool_call>{CALL}", "", [PARIS]),
    (MISTRAL, f"[TOOL_CALLS][{CALL}, {CALL.replace('Paris', 'Rome')}]", "", [PARIS, ROME]),
    (MISTRAL, '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', "", [PARIS]),
    (
        MISTRAL,
        '[TOOL_CALLS]get_weather[CALL_ID]k3xU2JFz9[ARGS]{"city": "Paris"}[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
        "",
        [PARIS, ROME],
    ),
    (LLAMA, '{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
    (LLAMA, '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
]
PLAIN = [
    (HERMES, "No call < here, <tool_cal"),
    (HERMES, "<tool_call>{broken</tool_call>"),
    (MISTRAL, "[TOOL_CALLS] but none"),
    (LLAMA, '{"answer": 4}'),
    (LLAMA, '{"name": "Bob", "age": 3}'),
    (LLAMA, "The set {1, 2} has two."),
]


@pytest.mark.parametrize(("template", "text", "content", "calls"), CASES)
def test_calls(template, text, content, calls):
    found = tool_format(template).read(text)
    assert found == (content, calls)
    for call in calls:
        assert json.loads(call.to_json()["function"]["arguments"]) == json.loads(call.arguments)
        assert len(call.to_json()["id"]) == 9


@pytest.mark.parametrize(("template", "text"), PLAIN)
def test_texts_without_calls_stay(template, text):
    assert tool_format(template).read(text) is None


@pytest.mark.parametrize(("template", "text", "content", "calls"), CASES)
def test_no_piece_of_a_call_is_sent_as_content(template, text, content, calls):
    """Whatever the pieces of a stream are, the text before a possible call is all that is sent."""
    format = tool_format(template)
    sent = ""
    for end in range(1, len(text) + 1):
        begin = format.beginning(text[:end])
        certain = text[: end if begin is None else begin]
        assert certain.startswith(sent)
        sent = certain
    assert sent.strip() == content


def test_templates_without_tools():
    assert tool_format("{{ messages[0].content }}") is None


@pytest.mark.parametrize(
    ("template", "begin", "end"),
    [(HERMES, '<tool_call>\n{"name":"é","arguments":', "}\n</tool_call>"), (LLAMA, '{"name":"é","parameters":', "}")],
)
def test_schemas_with_definitions(template, begin, end):
    """References lead to the definitions of their own schema."""

    def schema(kind):
        return {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/it"}},
            "required": ["x"],
            "$defs": {"it": {"type": kind}},
        }

    functions = {"é": schema("integer"), "other": schema("string")}
    grammar = tool_format(template).grammar(functions, json.dumps)
    assert accepts(grammar, f'{begin}{{"x":4}}{end}')
    assert not accepts(grammar, f'{begin}{{"x":"4"}}{end}')
    assert accepts(grammar, f'{begin}{{"x":"4"}}{end}'.replace("é", "other"))
