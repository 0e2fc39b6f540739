"""Chat template sandbox: untrusted templates are rendered in a child process with time and memory limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...runtime.base.errors import LimitError, UsageError
from ...runtime.base.units import counted
from ...runtime.base.untrusted import limited_process

MAX_CHARACTERS = 1 << 20
"""Limit of a template in characters; the longest published ones have 30,000."""
CODE = "E-TEMPLATE"
HINT = "Pass another template with --chat-template"


def rendered(
    source: str, values: Mapping[str, Any], path: str | None = None, now: Callable[[], datetime] = datetime.now
) -> str:
    """A template rendered with values that JSON can hold: strings, numbers, booleans, None, lists and dictionaries.

    Raises:
        FormatError: the source is not a valid template.
        UsageError: the template rejects its values, or JSON cannot hold them.
        UnsafeFileError: the template violates the sandbox.
        LimitError: the template exceeds the limits of time, memory or output.
    """
    if len(source) > MAX_CHARACTERS:
        why = f"the chat template has {counted(len(source), 'character')}, the limit is {MAX_CHARACTERS:,}"
        raise LimitError(f"{CODE}-SIZE", path, why, hint=HINT)
    try:
        plain = _plain(dict(values))
    except RecursionError as error:
        raise UsageError(
            f"{CODE}-VALUES", path, "the values of the chat template are nested too deeply", hint="Check the messages"
        ) from error
    arguments = {"source": source, "values": plain, "now": now().isoformat()}
    text: str = limited_process.call(
        f"{__package__}.template_environment",
        "render",
        arguments,
        limited_process.Work(CODE, "the chat template", path, HINT),
    )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        why = f"the chat template writes an unpaired surrogate at character {error.start}"
        raise UsageError(f"{CODE}-VALUES", path, why, hint="Check the messages") from error
    return text


def _plain(value: Any) -> Any:
    """A value with mappings and sequences as dictionaries and lists."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item) for item in value]
    why = f"a value of the chat template is of the type {type(value).__name__}, which JSON cannot represent"
    raise UsageError(f"{CODE}-VALUES", None, why, hint="Use strings, numbers, booleans, None, lists and dictionaries")
