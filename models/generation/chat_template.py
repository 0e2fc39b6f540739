"""Chat prompts: a model's chat template applied to messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ..tokenizer.core.tokenizer import Tokenizer

Message = Mapping[str, Any]


def prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    name: str = "default",
    tools: Sequence[Any] | None = None,
    answer: bool = True,
    path: str | None = None,
    now: Callable[[], datetime] = datetime.now,
    **values: Any,
) -> str:
    """The prompt for a chat model; encode it with ``add_bos=False`` if the template writes BOS itself.

    Args:
        messages: objects with ``role`` and ``content``.
        name: which of the model's templates.
        tools: descriptions of functions that the model may call; selects the template ``tool_use`` if the model has
            one.
        answer: whether to end with the generation prompt (the header of the assistant's answer).
        now: clock for templates that print the date.
        values: further variables of the template.
    """
    chosen = "tool_use" if tools and name == "default" and "tool_use" in tokenizer.templates else name
    if chosen not in tokenizer.templates:
        known = (
            f"Available templates: {', '.join(tokenizer.templates)}"
            if tokenizer.templates
            else "Pass a template with --chat-template FILE"
        )
        what = "a chat template" if name == "default" else f"a chat template {name!r}"
        raise UnsupportedError("E-TEMPLATE-NONE", path, f"lacks {what}", hint=known)
    return rendered_with(
        tokenizer.templates[chosen], tokenizer, messages, tools=tools, answer=answer, path=path, now=now, **values
    )


def rendered_with(
    template: str,
    tokenizer: Tokenizer | None,
    messages: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    answer: bool = True,
    path: str | None = None,
    now: Callable[[], datetime] = datetime.now,
    **values: Any,
) -> str:
    """A template rendered with messages and a tokenizer's special tokens."""
    from .template_sandbox import rendered

    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            why = f"message {number} is not an object with a role"
            raise UsageError("E-TEMPLATE-MESSAGES", None, why, hint='[{"role": "user", "content": "Hello"}]')
    names = {} if tokenizer is None else tokenizer.role_names()
    given = {
        "messages": list(messages),
        "tools": tools,
        "documents": None,
        "add_generation_prompt": answer,
        **names,
        **values,
    }
    return rendered(template, given, path, now)


def writes_bos(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a prompt already starts with BOS, or with the tokens the model prepends."""
    first = next(iter(tokenizer.opening), tokenizer.bos)
    return first is not None and text.startswith(tokenizer.vocabulary.texts[first])
