"""Trial rendering of chat templates with sample chats, in the sandbox and within the usual limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...models.generation.template_sandbox import rendered
from ...runtime.base.errors import FormatError, LimitError, UnsafeFileError, UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.contract.format import Finding

CODE = "E-SCAN-TEMPLATE"
USER = {"role": "user", "content": "What is the weather in Paris?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS},
}
CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
CHATS: dict[str, dict[str, Any]] = {
    "a user's message": {"messages": [USER]},
    "a system message": {
        "messages": [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Fine."}, USER]
    },
    "a tool's answer": {
        "messages": [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "sunny"},
        ],
        "tools": [FUNCTION],
    },
}
"""Chats by what they have in them."""
GIVEN = {
    "tools": None, "documents": None, "add_generation_prompt": True,
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
}  # fmt: skip
KEPT = 64
"""Templates whose outcome is remembered: a model has the same one in several files."""


def trial(text: str, member: str | None = None) -> Iterator[Finding]:
    """A finding when rendering some chat leaves the sandbox (danger) or exceeds a limit (warning); templates may refuse
    chats."""
    severity, message = _outcome(text)
    if severity:
        yield Finding(CODE, severity, message, member=member)


@process_cache(maxsize=KEPT)
def _outcome(text: str) -> tuple[str, str]:
    for name, chat in CHATS.items():
        try:
            rendered(text, GIVEN | chat)
        except UnsafeFileError as error:
            return "danger", f"rendered with {name}: {error.why}"
        except FormatError as error:
            return "warning", error.why
        except LimitError as error:
            if error.code == "E-TEMPLATE-PROCESS":
                raise
            return (
                "warning",
                f"rendered with {name}: {error.why}; a renderer without limits hangs or runs out of memory",
            )
        except UsageError:
            continue  # templates raise errors about chats that they are not made for
    return "", ""
