"""Chat templates are programs of strangers: each is rendered in a child process that the kernel limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...runtime import limited
from ...runtime.errors import LimitError, UsageError

LONGEST = 1 << 20
"""Characters of a template; the longest published ones have 30,000."""
CODE = "E-TEMPLATE"
HINT = "Give another template with --chat-template"


def rendered(source: str, values: Mapping[str, Any], path: str | None = None, now: Callable[[], datetime] = datetime.now) -> str:
    """What a template makes of values, which are what JSON can hold: texts, numbers, booleans, None, lists and dictionaries.

    Raises:
        FormatError: the source is not a template.
        UsageError: what the template says of its values, or values that JSON cannot hold.
        UnsafeFileError: the template reaches out of the sandbox.
        LimitError: it does not end, or makes something huge.
    """
    if len(source) > LONGEST:
        why = f"the chat template has {len(source):,} characters, and {LONGEST:,} are the limit"
        raise LimitError(f"{CODE}-SIZE", path, why, hint=HINT)
    try:
        plain = _plain(dict(values))
    except RecursionError as error:
        raise UsageError(f"{CODE}-VALUES", path, "the values of the chat template are nested too deeply", hint="Look at the messages") from error
    arguments = {"source": source, "values": plain, "now": now().isoformat()}
    text: str = limited.call(".models.language.template", "render", arguments, limited.Work(CODE, "the chat template", path, HINT))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        why = f"the chat template writes half of a surrogate pair, as character {error.start}"
        raise UsageError(f"{CODE}-VALUES", path, why, hint="Look at the messages") from error
    return text


def _plain(value: Any) -> Any:
    """A value with dictionaries and lists for whatever mappings and sequences there are."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item) for item in value]
    why = f"a value of the chat template is of the type {type(value).__name__}, which JSON cannot hold"
    raise UsageError(f"{CODE}-VALUES", None, why, hint="Give strings, numbers, booleans, None, lists and dictionaries")
