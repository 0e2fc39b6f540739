"""Chat templates are programs of strangers: Jinja's sandbox, with bounds on steps, time, sizes and numbers.

Jinja's own sandbox keeps programs away from Python's internals; what it lacks is an end: nested loops, doubled strings, padding by a
billion. Every line of a template is counted here, and what it computes stays small.

Source: jinja2.sandbox; transformers' chat_template_utils for the functions that templates expect.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import FrameType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ...runtime.errors import FormatError, LimitError, UnsafeFileError, UsageError

STEPS = 3_000_000
"""Lines of a template that may run."""
SECONDS = 10.0
LONGEST = 1 << 24
"""Characters, or elements, of what a template computes."""
LARGEST = 1_000_000
"""The largest number that a function is given."""
WIDTH = re.compile(r"\d{7,}")
FILTER_LARGEST = 10_000
"""The largest number that a filter is given: widths, counts."""
CODE = "E-TEMPLATE"


class RefusedError(ValueError):
    """What a template does is more than a chat template needs."""


class _Generation(Extension):
    """``{% generation %}`` marks what a model said, for training; here it is its content."""

    tags: set[str] = {"generation"}  # noqa: RUF012 (Jinja's own attribute)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Joined(NodeTransformer):
    """``a ~ b`` becomes a call, so that what it makes can be bounded."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 (the name that the visitor calls)
        self.generic_visit(node)
        return nodes.Call(nodes.Name("concatenated", "load"), node.nodes, [], None, None, lineno=node.lineno)


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment whose programs end, and whose values stay small."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension])
        self.filters = {name: _bounded(function) for name, function in {**self.filters, "tojson": _tojson}.items()}
        self.globals |= {
            "raise_exception": _raise, "strftime_now": lambda format: now().strftime(format), "concatenated": _concatenated,
        }  # fmt: skip

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Joined().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operation on two values, refused where its result would be large."""
        if operator == "*":
            _check(_size(left) * right if isinstance(right, int) else _size(right) * left if isinstance(left, int) else 0)
            _check_number(left, right)
        elif operator == "**":
            _check_number(left, right)
            _check(abs(right) * abs(left).bit_length() if isinstance(left, int) and isinstance(right, int) else 0, 4096)
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
            _check_number(right, *(right if isinstance(right, tuple) else ()))
        elif operator == "+":
            _check(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (arguments may have any name)
        """A call of a function or method, refused where its arguments are large."""
        bound = getattr(__obj, "__wrapped__", __obj)
        owner, name = getattr(bound, "__self__", None), getattr(bound, "__name__", "")
        if isinstance(owner, str):
            args = _checked_method(owner, name, args)
        _check_number(*args, *kwargs.values())
        return super().call(__context, __obj, *args, **kwargs)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else 0


def _check(size: int, most: int = LONGEST) -> None:
    if size > most:
        raise RefusedError(f"makes something of {size:,} elements")


def _check_number(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise RefusedError(f"uses the number {str(value)[:20] if abs(value) < 10**40 else 'of over 40 digits'}, which no chat template needs")


def _check_format(text: str) -> None:
    if WIDTH.search(text):
        raise RefusedError("pads a text to millions of characters")


def _checked_method(text: str, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a method of a text, generators among them as lists."""
    if name in ("format", "format_map"):
        _check_format(text)
    elif name == "replace" and len(arguments) > 1:
        _check_replaced(text, *arguments[:2])
    elif name == "join" and arguments:
        arguments = (_sized(arguments[0]), *arguments[1:])
        _check_joined(text, arguments[0])
    return arguments


def _check_joined(separator: str, items: Any) -> None:
    _check((len(items) if isinstance(items, str) else sum(map(_size, items))) + len(separator) * len(items))


def _sized(items: Any) -> Any:
    return items if isinstance(items, str | list | tuple | dict) else list(items)


def _check_replaced(text: str, old: Any, new: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        _check((text.count(old) if old else len(text) + 1) * len(new) + len(text))


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses to make something large."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        own, value, rest = args[:first], args[first] if len(args) > first else None, args[first + 1 :]
        for number in (*rest, *kwargs.values()):
            if isinstance(number, int) and abs(number) > FILTER_LARGEST:
                _check_number(LARGEST + abs(number))
        text = str(value) if isinstance(value, str) else ""
        if function.__name__ == "do_replace" and len(rest) > 1:
            _check_replaced(text, *rest[:2])
        elif function.__name__ == "do_indent":
            _check(len(text) + text.count("\n") * FILTER_LARGEST)
        elif function.__name__ == "do_format":
            _check_format(text)
        elif function.__name__ == "do_join":
            value = _sized(value)
            separator = rest[0] if rest and isinstance(rest[0], str) else ""
            _check_joined(separator, value)
        found = function(*own, value, *rest, **kwargs)
        _check(_size(found))
        return found

    return bounded


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """JSON as templates of chat models expect it: without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: Any) -> None:
    raise _Said(str(message))


class _Said(Exception):
    """A template refuses its messages."""


def _concatenated(*values: Any) -> str:
    texts = [str(value) for value in values]
    _check(sum(map(len, texts)))
    return "".join(texts)


def rendered(source: str, values: Mapping[str, Any], path: str | None = None, now: Callable[[], datetime] = datetime.now) -> str:
    """What a template makes of values.

    Raises FormatError for what is no template, UsageError for what the template says of its values, UnsafeFileError for ways out of the
    sandbox, LimitError for a template that does not end or makes something huge.
    """
    hint = "Give another template with --chat-template"
    try:
        template = Sandbox(now).from_string(source)
        with _counted(path):
            return _collected(template.generate(**values))
    except jinja2.TemplateSyntaxError as error:
        why = f"the chat template is not valid Jinja, in line {error.lineno}: {error.message}"
        raise FormatError(f"{CODE}-SYNTAX", path, why, hint=hint) from error
    except _Said as error:
        why = f"the chat template does not take these messages: {error}"
        raise UsageError(f"{CODE}-MESSAGES", path, why, hint="Look at it with candle-convert tokenizer show") from error
    except SecurityError as error:
        raise UnsafeFileError(f"{CODE}-SANDBOX", path, f"the chat template leaves its sandbox: {str(error).rstrip('.')}", hint=hint) from error
    except jinja2.TemplateError as error:
        why = f"the chat template needs something else: {error.message}"
        raise UsageError(f"{CODE}-VALUES", path, why, hint="Name it with --set NAME=JSON") from error
    except RecursionError as error:
        raise LimitError(f"{CODE}-DEPTH", path, "the chat template calls itself too deeply", hint=hint) from error
    except (RefusedError, MemoryError, OverflowError) as error:
        raise LimitError(f"{CODE}-SIZE", path, f"the chat template {error}", hint=hint) from error
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, ArithmeticError, LookupError) as error:
        raise UsageError(f"{CODE}-VALUES", path, f"the chat template fails on these values: {error}", hint="Look at the messages") from error


def _collected(pieces: Iterator[str]) -> str:
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        _check(size)
        found.append(piece)
    return "".join(found)


class _counted:  # noqa: N801 (used as a function is)
    """Lines that run inside are counted, and the time is looked at."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._left = STEPS

    def __enter__(self) -> None:
        self._deadline = time.monotonic() + SECONDS
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left % 1000 == 0 and time.monotonic() > self._deadline):
            sys.settrace(None)
            why = f"the chat template does not end: {STEPS:,} steps, or {SECONDS:g} seconds, are over"
            raise LimitError(f"{CODE}-STEPS", self._path, why, hint="Give another template with --chat-template")
        return self._trace
