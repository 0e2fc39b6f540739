"""Generation requests: prompts as token ids, sampling options and stop conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import did_you_mean
from .sampling import Sampling

DEFAULT_TOKENS = 128
"""Default limit of generated tokens."""


@dataclass(frozen=True)
class Request:
    """A generation request.

    Attributes:
        prompts: token ids of each sequence; at least one.
        max_tokens: limit of generated tokens per sequence.
        sampling: how tokens are chosen.
        stop: strings that end a sequence and are left out; they may span tokens.
        context: limit per sequence including its prompt; None for the model's context length, if it has one.
    """

    prompts: Sequence[Sequence[int]]
    max_tokens: int
    sampling: Sampling
    stop: Sequence[str] = ()
    context: int | None = None


def token_limit(max_tokens: int | None, max_new_tokens: int | None) -> int:
    """Limit of generated tokens, by either name. UsageError if the two differ."""
    if max_tokens is not None and max_new_tokens is not None and max_tokens != max_new_tokens:
        raise UsageError(
            "E-SAMPLE-OPTION",
            None,
            "max_tokens and max_new_tokens are one option",
            expected=max_tokens,
            found=max_new_tokens,
        )
    count = max_tokens if max_tokens is not None else max_new_tokens
    return DEFAULT_TOKENS if count is None else count


def requested(
    encode: Callable[[str], list[int]],
    prompts: Sequence[str | Sequence[int]],
    max_tokens: int,
    stop: Sequence[str] | str,
    context: int | None,
    sampling: dict[str, Any],
) -> Request:
    """A request to continue texts or ids. UsageError for an unknown sampling option or one out of range."""
    known = {field.name for field in dataclasses.fields(Sampling)}
    if unknown := [name for name in sampling if name not in known]:
        hint = did_you_mean(
            unknown[0], (*known, "max_tokens", "stop", "context", "stream"), f"Options: {', '.join(sorted(known))}"
        )
        raise UsageError("E-SAMPLE-OPTION", None, f"unknown option {unknown[0]!r}", hint=hint)
    ids = [encode(prompt) if isinstance(prompt, str) else list(map(int, prompt)) for prompt in prompts]
    return Request(ids, max_tokens, Sampling(**sampling), [stop] if isinstance(stop, str) else list(stop), context)
