"""Mistral: ``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``, or newer, ``[TOOL_CALLS]name[ARGS]{...}``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..tool_format import Marker, ToolCall, ToolFormat, call_grammar, calls_in, rule_of

BEGIN, ARGS = "[TOOL_CALLS]", "[ARGS]"
NAMED = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\]\w+)?\[ARGS\](.*)", re.DOTALL)


def read(text: str) -> tuple[str, list[ToolCall]] | None:
    """The text before calls, and the calls."""
    before, *parts = text.split(BEGIN)
    calls: list[ToolCall] = []
    for part in parts:
        named = NAMED.fullmatch(part)
        found = calls_in(part) if named is None else _named(named[1], named[2].strip())
        if found is None:
            return None
        calls += found
    return (before.strip(), calls) if calls else None


def _named(name: str, arguments: str) -> list[ToolCall] | None:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return [ToolCall(name, arguments)]


def grammar(functions: Mapping[str, Any], marker: Marker) -> str:
    """One call: a list of one object, or name and arguments for vocabularies with a token between them."""
    between = marker(ARGS)
    if between == json.dumps(ARGS):
        return f'start: {marker(BEGIN)} "[" call "]"\n{call_grammar(functions, "arguments")}'
    calls = " | ".join(f"{json.dumps(name)} {between} {rule_of(schema)}" for name, schema in functions.items())
    return f"start: {marker(BEGIN)} ({calls})"


TOOL_FORMAT = ToolFormat(BEGIN, (BEGIN,), read, grammar, inner=(ARGS, "[CALL_ID]"))
