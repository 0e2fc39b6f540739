"""Finding the tokenizer of a model: in its metadata, or among the files beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.errors import FormatError, UnsupportedError
from ....runtime.graph import Graph
from ....runtime.json import parse
from ....runtime.source import Source
from ....runtime.storage import Region
from .gguf import PREFIX, from_gguf
from .huggingface import Beside, from_json
from .tokenizer import Tokenizer

NAMED = "additional_chat_templates/"
PARSED_COST = 10
"""Bytes of memory that a byte of a tokenizer can take."""


def read(graph: Graph) -> Tokenizer:
    """The tokenizer of a model that was opened: GGUF metadata, or the files of its directory.

    Raises UnsupportedError where there is none, or where it is of a kind that is not known, FormatError where its files are damaged.
    """
    path = graph.files[0] if graph.files else None
    if f"{PREFIX}tokens" in graph.metadata:
        return from_gguf(graph.metadata, path)
    if "tokenizer.json" in graph.attachments:
        return from_json(_text(graph, "tokenizer.json"), beside(graph), templates(graph), path)
    hint = "Name the model's directory with its tokenizer files, or a GGUF file"
    raise UnsupportedError("E-TOKENIZER-NONE", path, "comes without a tokenizer", hint=hint)


def beside(graph: Graph) -> Beside:
    """What the JSON files of the model's directory say."""
    names = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json")
    return Beside(*(settings(graph, name) for name in names))


def settings(graph: Graph, name: str) -> Mapping[str, Any]:
    """A JSON object beside the weights, empty where there is none."""
    if name not in graph.attachments:
        return {}
    storage = graph.attachments[name]
    found = parse(data(graph, name), storage.source if isinstance(storage, Region) else Source(graph.files[0]), 0, "E-TOKENIZER-JSON")
    return found if isinstance(found, dict) else {}


def templates(graph: Graph) -> dict[str, str]:
    """Chat templates by name: files of their own, or in tokenizer_config.json as a text or a list of named ones."""
    said = settings(graph, "tokenizer_config.json").get("chat_template")
    found = {"default": said} if isinstance(said, str) else {}
    for item in said if isinstance(said, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("name"), str) and isinstance(item.get("template"), str):
            found[item["name"]] = item["template"]
    for name in graph.attachments:
        if name == "chat_template.jinja":
            found["default"] = _text(graph, name)
        elif name.startswith(NAMED) and name.endswith(".jinja"):
            found[name[len(NAMED) : -len(".jinja")]] = _text(graph, name)
    return found


def data(graph: Graph, name: str) -> bytes:
    """The bytes of a file beside the weights."""
    storage = graph.attachments[name]
    if isinstance(storage, Region):
        storage.source.budget.charge(PARSED_COST * storage.nbytes, name)
    return bytes(storage.read(0, storage.nbytes))


def _text(graph: Graph, name: str) -> str:
    try:
        return data(graph, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("E-TOKENIZER-TEXT", graph.files[0], f"{name} beside it is not UTF-8", at=error.start) from error
