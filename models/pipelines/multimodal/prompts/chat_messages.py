"""Messages with content parts, as OpenAI's interface and transformers' chat templates have them: texts, pictures and
sounds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from .....runtime.base.errors import UsageError
from .prompt_rules import PromptModel

KINDS = {"image": "image", "image_url": "image", "input_image": "image", "audio": "audio", "input_audio": "audio"}
"""Kinds of parts, with what templates call them."""
PLACES = ("image", "audio", "path", "url", "data", "image_url", "input_audio")
"""Keys that hold what a part is of."""


def templated(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Messages for a chat template, whose parts do not hold what they are of, and the pictures and sounds in their
    order. UsageError for parts of other kinds."""
    media: dict[str, list[Any]] = {"image": [], "audio": []}
    found = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list | tuple):
            found.append(dict(message) if isinstance(message, Mapping) else message)
            continue
        parts = []
        for part in content:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind in ("text", "input_text"):
                parts.append({"type": "text", "text": part.get("text", "")})
            elif kind in KINDS:
                media[KINDS[kind]].append(_held(part))
                parts.append({"type": KINDS[kind]})
            else:
                expected = ", ".join(("text", *KINDS))
                raise UsageError("E-LM-PART", None, "unknown content part", expected=expected, found=str(kind))
        found.append({**message, "content": parts})
    return found, media["image"], media["audio"]


def _held(part: Mapping[str, Any]) -> Any:
    """The content of a part: a path, bytes, an array ..."""
    value = next((part[key] for key in PLACES if part.get(key) is not None), None)
    if isinstance(value, Mapping):
        return _held({"url": value.get("url"), "data": value.get("data")})
    if value is None:
        raise UsageError("E-LM-PART", None, f"a content part {part.get('type')} holds nothing", hint="Give it a path")
    if not isinstance(value, str):
        return value
    if value.startswith(("http://", "https://")):
        why = "pictures and sounds of the network are not fetched"
        raise UsageError("E-LM-PART", None, why, found=value[:80], hint="Download the file, and pass its path")
    if value.startswith("data:") or value == part.get("data"):
        try:
            return base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
        except binascii.Error as error:
            raise UsageError("E-LM-PART", None, f"a content part is not valid base64: {error}") from error
    return value.removeprefix("file://")


def prompt_of(
    model: PromptModel, messages: Sequence[Mapping[str, Any]], path: str | None = None
) -> tuple[str, list[Any], list[Any], bool | None]:
    """The text that the model's chat template makes of messages, pictures and sounds, and `add_bos` of
    `Tokenizer.encode`."""
    from ....generation.chat_template import prompt, writes_bos

    plain, images, audio = templated(messages)
    text = prompt(model.tokenizer, plain, path=path)
    return text, images, audio, False if writes_bos(model.tokenizer, text) else None
