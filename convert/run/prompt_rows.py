"""Prompts of a JSONL file, answered together by the engine of continuous batching."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...models.generation.batching.request import Request
from ...models.generation.chat_template import prompt as chat_prompt
from ...models.generation.chat_template import writes_bos
from ...models.generation.sampling import Sampling
from ...runtime.base.errors import FormatError, UsageError
from .text_lines import texts_of

if TYPE_CHECKING:
    from ...models.generation.batching.grammar import Grammar
    from ...models.generation.generate import Generation
    from ...models.generation.language_model import LanguageModel

PROMPT, MESSAGES = "prompt", "messages"
SAMPLING = tuple(field.name for field in dataclasses.fields(Sampling))
REAL = tuple(field.name for field in dataclasses.fields(Sampling) if isinstance(field.default, float))
OWN = ("max_tokens", "stop", *SAMPLING)
"""Keys of a row that replace options of the command, unless they are null."""


def read_rows(path: str) -> list[dict[str, Any]]:
    """The objects of a JSONL file, or of standard input for ``-``. FormatError for a line that is not an object with a
    prompt or messages, or has a wrong setting."""
    rows = []
    for number, line in enumerate(texts_of((), path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _error(path, number, f"is not JSON: {error}") from error
        if not isinstance(row, dict) or (PROMPT in row) == (MESSAGES in row):
            raise _error(path, number, "is not an object with a prompt or messages")
        if not isinstance(row.get(PROMPT, ""), str) or not isinstance(row.get(MESSAGES, []), list):
            raise _error(path, number, "has a prompt that is not a text, or messages that are not a list")
        why = _fault(_settings(row))
        if why is not None:
            raise _error(path, number, why)
        rows.append(row)
    return rows


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in OWN if row.get(name) is not None}


def _fault(settings: Mapping[str, Any]) -> str | None:
    """The error in the settings of a row."""
    for name, value in settings.items():
        if name == "stop":
            if not isinstance(value, str | list) or not all(isinstance(one, str) for one in value):
                return "has a stop that is neither a text nor a list of texts"
            continue
        wanted, kinds = ("a number", (int, float)) if name in REAL else ("a whole number", (int,))
        if type(value) not in kinds or abs(value) >= 2**63:
            return f"has {name} {json.dumps(value)[:40]}, expected {wanted}"
    if settings.get("max_tokens", 0) < 0:
        return f"has max_tokens {settings['max_tokens']}, expected 0 or more"
    try:
        Sampling(**{name: settings[name] for name in SAMPLING if name in settings})
    except UsageError as error:
        return f"has a wrong setting: {error.why} (expected {error.expected}, found {error.found})"
    return None


def requests_of(
    model: LanguageModel,
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    grammar: Grammar | None,
    first: int = 0,
) -> list[Request]:
    """The requests of rows.

    Args:
        options: values of `OWN` for rows that have none.
        grammar: that all texts follow.
        first: number of the first row, which its random numbers depend on.
    """
    return [_request(model, row, number, options, grammar) for number, row in enumerate(rows, first)]


def _request(
    model: LanguageModel, row: Mapping[str, Any], number: int, options: Mapping[str, Any], grammar: Grammar | None
) -> Request:
    chosen = {**options, **_settings(row)}
    tokenizer = model.tokenizer
    if PROMPT in row:
        ids = tokenizer.encode(row[PROMPT])
    else:
        text = chat_prompt(tokenizer, row[MESSAGES])
        ids = tokenizer.encode(text, add_bos=False if writes_bos(tokenizer, text) else None)
    stop = chosen.get("stop", ())
    return Request(
        ids,
        chosen["max_tokens"],
        Sampling(**{name: chosen[name] for name in SAMPLING if name in chosen}),
        [stop] if isinstance(stop, str) else list(stop),
        choice=number,
        constraint=None if grammar is None else grammar.constraint(),
    )


def answer_lines(rows: Sequence[Mapping[str, Any]], made: Sequence[Generation]) -> list[str]:
    """A line of JSON for each row: what it has, and its text, token ids and why they end."""
    return [
        json.dumps({**row, "text": one.text, "tokens": one.tokens, "reason": one.reason}, ensure_ascii=False)
        for row, one in zip(rows, made, strict=True)
    ]


def _error(path: str, number: int, why: str) -> FormatError:
    hint = 'Write one object a line, such as {"prompt": "Hello"}'
    return FormatError("E-PROMPT-ROW", path, f"line {number} {why}", hint=hint)
