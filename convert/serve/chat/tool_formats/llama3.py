"""Llama 3: the whole text is ``{"name": ..., "parameters": {...}}``, after ``<|python_tag|>`` or alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tool_format import Marker, ToolCall, ToolFormat, call_grammar, calls_in

TAG = "<|python_tag|>"


def read(text: str) -> tuple[str, list[ToolCall]] | None:
    """No text, and the calls."""
    parts = text.strip().removeprefix(TAG).split(";")
    found = calls_in(text.strip().removeprefix(TAG))
    calls = [found] if found is not None else [calls_in(part) for part in parts]
    if None in calls:
        return None
    return "", [call for each in calls for call in each or ()]


def grammar(functions: Mapping[str, Any], marker: Marker) -> str:
    """One call."""
    return f"start: call\n{call_grammar(functions, 'parameters')}"


TOOL_FORMAT = ToolFormat(TAG, (TAG, "{"), read, grammar, first_only=True)
