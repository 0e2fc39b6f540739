"""Strict JSON parser for untrusted files: UTF-8, no duplicate keys, bounded nesting and container count."""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

from ..errors import FormatError, LimitError
from ..limits import Budget

_QUOTED = rb'"(?:[^"\\]++|\\.)*+"?'
"""A whole string, even one without an end. Nothing is tried twice, so that the time is linear in any text."""
_STRING = re.compile(_QUOTED, re.DOTALL)
_STRUCTURE = re.compile(_QUOTED + rb"|[\[\]{}]", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HINT = "Fetch the file again, or write it again with the program that made it"
CONTAINER = 64
"""Bytes that an empty list or object takes at least."""


class Origin(Protocol):
    """The source of a text: an open file, or a substitute for one."""

    @property
    def path(self) -> str: ...
    @property
    def budget(self) -> Budget: ...


def parse(data: bytes, source: Origin, at: int, code: str, *, constants: bool = False) -> Any:
    """The value of a JSON text at byte `at`.

    Args:
        code: error code for text that is not JSON.
        constants: whether NaN, Infinity and -Infinity are numbers, as Python writes them.
    """
    _check_structure(data, source, at)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(code, source.path, "the JSON text is not UTF-8", at=at + error.start, hint=HINT) from error
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=float if constants else _no_constant)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except _Refused as error:
        raise FormatError(code, source.path, str(error), at=at, hint=HINT) from error
    except json.JSONDecodeError as error:
        raise FormatError(
            code, source.path, f"not JSON: {error.msg}", at=at + len(text[: error.pos].encode()), hint=HINT
        ) from error
    except UnicodeEncodeError as error:
        raise FormatError(
            code, source.path, "the JSON text holds half of a surrogate pair", at=at, hint=HINT
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(code, source.path, f"not JSON: {error}", at=at, hint=HINT) from error
    except RecursionError as error:
        raise LimitError(
            "E-LIMIT-DEPTH", source.path, "JSON nested deeper than Python can follow", at=at, hint="Lower --limit depth"
        ) from error
    return value


class _Refused(ValueError):
    pass


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of pairs of key and value, for ``object_pairs_hook``; ValueError for a key that appears twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {twice[:80]!r} appears twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise _Refused(f"{name} is not JSON")


def _check_structure(data: bytes, source: Origin, at: int) -> None:
    most = source.budget.header_left // CONTAINER
    containers = _beginnings(data)
    if containers > most:
        containers = _beginnings(_STRING.sub(b"", data))
    if containers <= most:
        containers = _depth_checked(data, source, at)
    source.budget.charge(containers * CONTAINER, "a JSON text of so many lists and objects", at)


def _beginnings(data: bytes) -> int:
    """Brackets that begin a list or object, or stand in a string."""
    return data.count(b"[") + data.count(b"{")


def _depth_checked(data: bytes, source: Origin, at: int) -> int:
    """Number of lists and objects, none of them too deep."""
    depth = containers = 0
    for match in _STRUCTURE.finditer(data):
        first = match[0][0]
        if first in b"[{":
            depth += 1
            containers += 1
            if depth > source.budget.limits.depth:
                why = f"JSON nested deeper than {source.budget.limits.depth}"
                hint = "Raise it with --limit depth=1000"
                raise LimitError("E-LIMIT-DEPTH", source.path, why, at=at + match.start(), hint=hint)
        elif first in b"]}":
            depth -= 1
    return containers
