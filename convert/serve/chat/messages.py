"""Messages of chat requests: checked, and as templates expect them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..requests.http_error import HTTPError, bad_request
from ..requests.media import base64_bytes, data_url

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Roles, and what templates call them."""
TEXTS, PICTURES, SOUNDS = ("text", "input_text"), ("image_url", "input_image"), ("input_audio", "audio_url")


def template_messages(messages: Sequence[Mapping[str, Any]], *, media: bool, most: int) -> list[dict[str, Any]]:
    """Messages for a chat template.

    Args:
        media: whether the model takes pictures and sounds; contents are lists of parts then, with the bytes of each.
        most: pictures and sounds that are taken.

    Raises HTTPError 400 for other messages, 413 for too many pictures and sounds.
    """
    found = [_message(message, f"messages[{number}]", media) for number, message in enumerate(messages)]
    parts = [part for message in found if isinstance(message["content"], list) for part in message["content"]]
    count = sum(part["type"] != "text" for part in parts)
    if count > most:
        why = f"the messages have {count} pictures and sounds, at most {most} are taken"
        raise HTTPError(413, why, param="messages")
    return found


def _message(given: Mapping[str, Any], name: str, media: bool) -> dict[str, Any]:
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise bad_request(f"{name}.role is {str(role)[:40]!r}, expected one of {', '.join(ROLES)}", f"{name}.role")
    calls = given.get("tool_calls")
    content = given.get("content")
    if content is None and not (role == "assistant" and calls):
        raise bad_request(f"{name}.content is missing", f"{name}.content")
    found: dict[str, Any] = {"role": ROLES[role], "content": _content(content, f"{name}.content", media)}
    for key in ("name", "tool_call_id"):
        if given.get(key) is not None:
            if not isinstance(given[key], str):
                raise bad_request(f"{name}.{key} is not a string", f"{name}.{key}")
            found[key] = given[key]
    if calls:
        found["tool_calls"] = _calls(calls, f"{name}.tool_calls")
    return found


def _content(content: Any, name: str, media: bool) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        text = content or ""
        return [{"type": "text", "text": text}] if media else text
    if not isinstance(content, list):
        raise bad_request(f"{name} is neither a string nor a list of parts", name)
    parts = [_part(part, f"{name}[{number}]", media) for number, part in enumerate(content)]
    return parts if media else "\n".join(part["text"] for part in parts)


def _part(part: Any, name: str, media: bool) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in TEXTS:
        if not isinstance(part.get("text"), str):
            raise bad_request(f"{name}.text is not a string", f"{name}.text")
        return {"type": "text", "text": part["text"]}
    if kind not in (*PICTURES, *SOUNDS):
        expected = ", ".join((*TEXTS, *PICTURES, *SOUNDS))
        raise bad_request(f"{name}.type is {str(kind)[:40]!r}, expected one of {expected}", f"{name}.type")
    if not media:
        raise bad_request(f"{name}: the model takes no pictures or sounds", name)
    held = part.get(kind)
    if kind == "input_audio":
        data = held.get("data") if isinstance(held, dict) else None
        return {"type": "audio", "audio": base64_bytes(data, f"{name}.input_audio.data")}
    data = data_url(held.get("url") if isinstance(held, dict) else held, f"{name}.{kind}")
    return {"type": "image", "image": data} if kind in PICTURES else {"type": "audio", "audio": data}


def _calls(calls: Any, name: str) -> list[dict[str, Any]]:
    """Calls of earlier answers, with arguments as objects, which templates write as they need."""
    if not isinstance(calls, list):
        raise bad_request(f"{name} is not a list", name)
    found = []
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_request(f"{name}[{number}] is not a call of a function", f"{name}[{number}]")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError) as error:
                raise bad_request(f"{name}[{number}] has arguments that are not JSON", f"{name}[{number}]") from error
        found.append({
            "id": str(call.get("id", "")), "type": "function",
            "function": {"name": function["name"], "arguments": arguments},
        })  # fmt: skip
    return found
