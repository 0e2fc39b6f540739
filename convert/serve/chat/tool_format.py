"""Tool formats: finding calls of tools in the text of a model."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from ....models.generation.batching.grammar import COMPACT
from ....runtime.base.dataclass import dataclass
from ....runtime.plugin.discovery import Plugins

PLUGINS = Plugins("convert.serve.chat.tool_formats", "TOOL_FORMAT")
ARGUMENTS = ("arguments", "parameters")
"""Keys of the arguments of a call."""
ID_LENGTH = 9
"""Of ids of calls; Mistral's templates refuse others."""


Marker = Callable[[str], str]
"""Writes a text in Lark's notation, special tokens as themselves; see `GrammarCompiler.marker`."""


@dataclass(frozen=True)
class ToolCall:
    """One call: the name of a function, and its arguments as JSON text."""

    name: str
    arguments: str

    def to_json(self) -> dict[str, Any]:
        """OpenAI's object, with an id of its own."""
        letters = string.ascii_letters + string.digits
        made = "".join(secrets.choice(letters) for _ in range(ID_LENGTH))
        return {"id": made, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ToolFormat:
    """How models of a family write calls.

    Attributes:
        mark: text of chat templates of the family.
        begins: texts that begin calls; a call may stand at the beginning of a text alone with `first_only`.
        inner: special tokens within calls.
        grammar: a grammar of one call in Lark's notation, of the schemas of functions by their names.
        read: calls and the text around them, None where the text holds no complete call.
    """

    mark: str
    begins: tuple[str, ...]
    read: Callable[[str], tuple[str, list[ToolCall]] | None]
    grammar: Callable[[Mapping[str, Any], Marker], str]
    first_only: bool = False
    inner: tuple[str, ...] = ()

    def beginning(self, text: str) -> int | None:
        """Index at which a call begins, or may begin, in a text that may go on; None if none does."""
        if self.first_only:
            bare = text.lstrip()
            starts = any(bare.startswith(begin) or begin.startswith(bare) for begin in self.begins)
            return 0 if starts else None
        places = [text.find(begin) for begin in self.begins]
        whole = [place for place in places if place >= 0]
        if whole:
            return min(whole)
        partial = [
            len(text) - length
            for begin in self.begins
            for length in range(1, min(len(begin), len(text) + 1))
            if text.endswith(begin[:length])
        ]
        return min(partial, default=None)


def tool_format(template: str) -> ToolFormat | None:
    """The format of a model by its chat template; None for models without tools."""
    return next((each for each in PLUGINS.all() if each.mark in template), None)


def call_grammar(functions: Mapping[str, Any], key: str) -> str:
    """The rule ``call`` in Lark's notation: an object with the name of a function, and its arguments by `key`."""
    begins = {name: f'{{"name":{json.dumps(name, ensure_ascii=False)},"{key}":' for name in functions}
    calls = [f"{json.dumps(begins[name])} {rule_of(schema)} {json.dumps('}')}" for name, schema in functions.items()]
    return f"call: {' | '.join(calls)}"


def rule_of(schema: Mapping[str, Any]) -> str:
    """An element of a grammar in Lark's notation: JSON of a schema, which is its own root for references."""
    return f"%json {json.dumps({**schema, 'x-guidance': COMPACT})}"


def call_of(value: Any) -> ToolCall | None:
    """A call from an object with the name of a function and its arguments; None for other values."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    key = next((key for key in ARGUMENTS if key in value), None)
    if key is None:
        return None
    given = value[key]
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return ToolCall(value["name"], text)


def calls_in(text: str) -> list[ToolCall] | None:
    """Calls of a JSON text, one object or a list of objects; None for other texts."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = [call_of(each) for each in (value if isinstance(value, list) else [value])]
    calls = [call for call in found if call is not None]
    return calls if calls and len(calls) == len(found) else None
