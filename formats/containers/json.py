"""JSON from untrusted files: strict UTF-8, no duplicate keys, no NaN or Infinity, bounded nesting."""

from __future__ import annotations

import json
import re
from typing import Any

from ...runtime.errors import FormatError, LimitError
from ...runtime.source import Source

_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse(data: bytes, source: Source, at: int, code: str) -> Any:
    """The value of a JSON text that stands at byte `at`; `code` is the error code for text that is not JSON."""
    _check_depth(data, source, at)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(code, source.path, "the JSON text is not UTF-8", at=at + error.start) from error
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _Refused as error:
        raise FormatError(code, source.path, str(error), at=at) from error
    except json.JSONDecodeError as error:
        raise FormatError(code, source.path, f"not JSON: {error.msg}", at=at + len(text[: error.pos].encode())) from error
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(code, source.path, f"not JSON: {error}", at=at) from error


class _Refused(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise _Refused(f"{name} is not JSON")


def _check_depth(data: bytes, source: Source, at: int) -> None:
    depth = 0
    for match in _STRUCTURE.finditer(data):
        first = match[0][0]
        depth += (first in b"[{") - (first in b"]}")
        if depth > source.budget.limits.depth:
            raise LimitError(
                "E-LIMIT-DEPTH", source.path, f"JSON nested deeper than {source.budget.limits.depth}", at=at + match.start(),
                hint="Raise it with --limit depth=1000",
            )
