"""Chats as prompts: a model's template applied to messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...runtime.errors import UnsupportedError, UsageError
from .tokenizer.tokenizer import Tokenizer

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
    """The text that a model of chats is given; encode it with ``add_bos=False`` where the template writes BOS itself.

    Args:
        messages: objects with ``role`` and ``content``.
        name: which of the model's templates.
        tools: descriptions of functions that the model may call; a template named ``tool_use`` is taken for them where there is one.
        answer: whether the text ends with what begins the model's answer.
        now: what templates take for the present.
        values: what else the template may ask for.
    """
    chosen = "tool_use" if tools and name == "default" and "tool_use" in tokenizer.templates else name
    if chosen not in tokenizer.templates:
        known = f"There are: {', '.join(tokenizer.templates)}" if tokenizer.templates else "Give one with --chat-template FILE"
        what = "a chat template" if name == "default" else f"a chat template {name!r}"
        raise UnsupportedError("E-TEMPLATE-NONE", path, f"lacks {what}", hint=known)
    return rendered_with(tokenizer.templates[chosen], tokenizer, messages, tools=tools, answer=answer, path=path, now=now, **values)


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
    """What a template makes of messages, with the special tokens of a tokenizer."""
    from .sandbox import rendered

    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            why = f"message {number} is not an object with a role"
            raise UsageError("E-TEMPLATE-MESSAGES", None, why, hint='[{"role": "user", "content": "Hello"}]')
    names = {} if tokenizer is None else tokenizer.role_names()
    given = {"messages": list(messages), "tools": tools, "documents": None, "add_generation_prompt": answer, **names, **values}
    return rendered(template, given, path, now)


def writes_bos(tokenizer: Tokenizer, text: str) -> bool:
    """Whether a prompt begins already with what begins a text: BOS, or the model's own."""
    first = next(iter(tokenizer.opening), tokenizer.bos)
    return first is not None and text.startswith(tokenizer.vocabulary.texts[first])
