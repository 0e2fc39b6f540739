"""Hermes and Qwen: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..tool_format import Marker, ToolCall, ToolFormat, call_grammar, calls_in

BEGIN, END = "<tool_call>", "</tool_call>"
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def read(text: str) -> tuple[str, list[ToolCall]] | None:
    """The text without calls, and the calls."""
    found = [calls_in(inner) for inner in CALL.findall(text)]
    if not found or None in found:
        return None
    return CALL.sub("", text).strip(), [call for calls in found for call in calls or ()]


def grammar(functions: Mapping[str, Any], marker: Marker) -> str:
    """One call between its tags."""
    return f'start: {marker(BEGIN)} "\\n" call "\\n" {marker(END)}\n{call_grammar(functions, "arguments")}'


TOOL_FORMAT = ToolFormat(BEGIN, (BEGIN,), read, grammar)
