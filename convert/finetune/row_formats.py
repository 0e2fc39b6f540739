"""Row formats: ShareGPT conversations as messages, Alpaca instructions as messages or as Alpaca's prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
"""Chat-template role of each speaker that ShareGPT rows name."""
ALPACA_PROMPTS = {
    True: (
        "Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
    ),
    False: (
        "Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Response:\n"
    ),
}
"""Stanford Alpaca's prompt, by whether a row has an input."""


def sharegpt_messages(fields: Mapping[str, Any]) -> list[dict[str, str]] | str:
    """Messages of a ShareGPT row; what is wrong with it where they cannot be made."""
    turns = fields["conversations"]
    if not isinstance(turns, list) or not turns:
        return "'conversations' is not a list of objects with from and value"
    system = fields.get("system")
    messages = [{"role": "system", "content": system}] if isinstance(system, str) and system.strip() else []
    for turn in turns:
        speaker = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        content = turn.get("value", turn.get("content")) if isinstance(turn, dict) else None
        if not isinstance(speaker, str) or not isinstance(content, str):
            return "'conversations' is not a list of objects with from and value"
        if speaker not in SHAREGPT_ROLES:
            return f"unknown speaker {speaker[:80]!r} in 'conversations'"
        messages.append({"role": SHAREGPT_ROLES[speaker], "content": content})
    return messages


def alpaca_messages(fields: Mapping[str, Any]) -> list[dict[str, str]]:
    """Messages of an Alpaca row: the instruction and its input as the user's, the output as the assistant's."""
    system, given = fields.get("system"), fields.get("input") or ""
    request = f"{fields['instruction']}\n\n{given}" if given.strip() else fields["instruction"]
    return [
        *([{"role": "system", "content": system}] if isinstance(system, str) and system.strip() else []),
        {"role": "user", "content": request},
        {"role": "assistant", "content": fields["output"]},
    ]


def alpaca_prompt(fields: Mapping[str, Any]) -> str:
    """Alpaca's prompt of a row, for models without a chat template."""
    given = fields.get("input") or ""
    return ALPACA_PROMPTS[bool(given.strip())].format(instruction=fields["instruction"], input=given)
