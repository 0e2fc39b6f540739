"""Scan of configuration files: code execution requested by JSON files and templates of a model.

They are looked at and never followed; templates are rendered with sample chats, in a process with limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ...formats.containers.gguf.template_scan import MAX_CHARACTERS, suspicions
from ...runtime.base.errors import FormatError
from ...runtime.base.limits import Budget
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.format import Finding
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Storage
from ...runtime.tensor.storage_search import windows
from . import keras_config, skops_schema
from .template_trial import trial

JSON = 4 * 2**20
"""Bytes of a configuration that is looked at; tokenizers, which are larger, have none of the keys."""
WINDOW, OVERLAP = 1 << 20, 256
CODE_KEYS = ("auto_map", "custom_pipelines")
TEMPLATE, LAYER, NODE = "chat_template", "class_name", "__loader__"
KEYS = (*CODE_KEYS, TEMPLATE, LAYER, NODE)
_KEYS = re.compile(
    "|".join(
        '"' + "".join(rf"(?:{character}|\\u00{ord(character):02x})" for character in key) + '"' for key in KEYS
    ).encode(),
    re.IGNORECASE,
)
"""Any of the keys, each character of which JSON may also write as an escape."""


def look(storage: Storage, source: Source, member: str | None) -> Iterator[Finding]:
    """A JSON file: code that it names, and the templates in it. It is parsed only when it has such keys."""
    if not _has_key(storage, source.budget):
        return
    if storage.nbytes > JSON:
        yield Finding(
            "E-SCAN-JSON",
            "error",
            f"a configuration of {counted(storage.nbytes, 'byte')} is not scanned",
            member=member,
        )
        return
    yield from look_at(_parsed(bytes(storage.read(0, storage.nbytes)), source), member)


def look_at(value: Any, member: str | None) -> Iterator[Finding]:
    """Code that a JSON value names, and the templates in it."""
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        if isinstance(item, dict):
            yield from keras_config.code_in(item, member)
            yield from skops_schema.code_in(item, member)
        for key, inner in item.items() if isinstance(item, dict) else ():
            if key in CODE_KEYS and inner:
                yield Finding(
                    "W-SCAN-AUTO-MAP",
                    "warning",
                    f"names Python code to be run: {json.dumps(inner)[:120]}",
                    member=member,
                )
            for text in texts(inner) if key == TEMPLATE else ():
                yield from template(text, member)
            pending.append(inner)


def _has_key(storage: Storage, budget: Budget) -> bool:
    return any(_KEYS.search(data) is not None for _, data in windows(storage, budget, WINDOW, OVERLAP))


def _parsed(data: bytes, source: Source) -> Any:
    """The value of a JSON text, read as leniently as Python does; every value of a key that stands twice is kept."""
    try:
        return parse(data, source, 0, "E-SCAN-JSON")
    except FormatError as error:
        try:
            return json.loads(data, object_pairs_hook=lambda pairs: [{key: value} for key, value in pairs])
        except ValueError:
            raise error from None


def texts(value: Any) -> list[str]:
    """The templates in a chat_template value: one text, or a list of {"name", "template"}, or a dictionary of texts."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in texts(item.get("template") if isinstance(item, dict) else item)]
    return [text for text in value.values() if isinstance(text, str)] if isinstance(value, dict) else []


def template(text: str, member: str | None) -> Iterator[Finding]:
    """A chat template, which is a program: what it is made of, and whether rendering it ends."""
    if len(text) > MAX_CHARACTERS:
        yield Finding(
            "E-SCAN-TEMPLATE", "error", f"a template of {counted(len(text), 'character')} is not scanned", member=member
        )
        return
    found = suspicions(text)
    for suspicion in found:
        yield Finding("E-SCAN-TEMPLATE", suspicion.severity, f"the template {suspicion.message}", member=member)
    if all(suspicion.severity == "warning" for suspicion in found):
        yield from trial(text, member)
