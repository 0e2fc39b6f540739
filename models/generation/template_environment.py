"""Jinja environment of chat templates: the sandbox plus what transformers offers to templates, run in a child process.

Jinja's sandbox keeps templates away from Python's internals; the child's limits bound time and memory.

Source: jinja2.sandbox; transformers' chat_template_utils for the functions that templates expect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...runtime.base.errors import Error, FormatError, LimitError, UnsafeFileError, UsageError
from ...runtime.base.process_cache import process_cache

CODE = "E-TEMPLATE"
HINT = "Pass another template with --chat-template"


class _Generation(Extension):
    """``{% generation %}`` marks assistant text for training; it renders as its content."""

    tags: set[str] = {"generation"}  # noqa: RUF012 (Jinja's own attribute)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with errors raised unchanged."""

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Raise an error without a traceback that quotes the template, for which Jinja would read files."""
        raise


class _MessagesError(Exception):
    """The template rejected its messages."""


FAILURES: tuple[tuple[type[Exception], type[Error], str, str, str], ...] = (
    (jinja2.TemplateSyntaxError, FormatError, "SYNTAX", "is not valid Jinja, in line {line}:", HINT),
    (SyntaxError, FormatError, "SYNTAX", "is not valid Jinja:", HINT),
    (
        _MessagesError,
        UsageError,
        "MESSAGES",
        "rejects these messages:",
        "Show the template with candle-convert tokenizer show",
    ),
    (SecurityError, UnsafeFileError, "SANDBOX", "violates its sandbox:", HINT),
    (jinja2.TemplateError, UsageError, "VALUES", "needs other values:", "Set variables with --set NAME=JSON"),
    (RecursionError, LimitError, "DEPTH", "calls itself or is nested too deeply:", HINT),
    (OverflowError, LimitError, "SIZE", "computes a value that is too large:", HINT),
    (Exception, UsageError, "VALUES", "fails on these values:", "Check the messages"),
)
"""Exceptions of templates, first match wins: type, error, suffix of its code, message and hint."""


def render(arguments: Mapping[str, Any]) -> str:
    """The rendered text of a template.

    Args:
        arguments: ``source``, ``values``, and ``now`` in ISO 8601.

    Raises:
        MemoryError: it needs more than there is.
        Error: one of `FAILURES`.
    """
    try:
        template = _compiled(arguments["source"])
        now = datetime.fromisoformat(arguments["now"])
        return template.render({**arguments["values"], "strftime_now": now.strftime})
    except MemoryError:
        raise
    except Exception as error:  # functions called by a template may raise anything
        raise _failure(error) from error


def _failure(error: Exception) -> Error:
    _, made, suffix, does, hint = next(row for row in FAILURES if isinstance(error, row[0]))
    message = str(getattr(error, "message", None) or getattr(error, "msg", None) or error)
    said = " ".join(message.split())[:300].rstrip(".") or type(error).__name__
    return made(
        f"{CODE}-{suffix}",
        None,
        f"the chat template {does.format(line=getattr(error, 'lineno', None))} {said}",
        hint=hint,
    )


@process_cache(maxsize=1)
def _compiled(source: str) -> jinja2.Template:
    """A template that may be rendered again, as that of a conversation is."""
    return _environment().from_string(source)


@process_cache
def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    return environment


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as templates of chat models expect it: without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: Any) -> None:
    raise _MessagesError(message)
