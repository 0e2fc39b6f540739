"""GGUF to model cards: ``general.*`` keys as the front matter of README.md, and back.

What the hub has a field for stands under its name (license, language, tags, base_model, datasets), names and authors
under those that llama.cpp's converter reads (model_name, model_author ...), and everything else in one block, with the
types of its values. GGUF files have no key for the text below the front matter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ...runtime.base.errors import Error, UsageError, printable
from ...runtime.base.string_array import StringArray
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage
from .front_matter import LONGEST, written
from .metadata_value import kind_of, readable, typed
from .model_card import BLOCK, CARD, HUB, SAMPLING, SOURCES, UNREADABLE, card_of, stated

GENERAL = "general."
COMPUTED = ("architecture", "type", "file_type", "quantization_version", "alignment")
"""Keys below ``general.`` that are said anew of every file."""
OTHERS = ("tokenizer.", "split.", "quantize.")
"""Prefixes of keys outside the architecture's own."""
FIELDS = {
    "license": "license", "license.name": "license_name", "license.link": "license_link", "languages": "language",
    "tags": "tags", "name": "model_name", "author": "model_author", "organization": "model_organization",
    "version": "model_version", "basename": "model_basename", "finetune": "model_finetune",
    "size_label": "model_size_label", "description": "model_description", "source.url": "model_url",
    "source.doi": "model_doi", "source.uuid": "model_uuid", "source.repo_url": "model_repo_url",
}  # fmt: skip
"""Field of a card by key."""
HUB_FIELDS = {"base_model": "base_model", "dataset": "datasets"}
"""Field of a card for ids of the hub, by the keys that say more of each."""
DATASETS = HUB + "datasets/"
SAMPLED = {
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "temp": "temperature",
    "penalty_repeat": "repetition_penalty",
}
"""Key of generation_config.json as transformers has it, by key below ``general.sampling``."""
LARGEST = 1 << 14
"""Characters of a value that a card holds."""


def sampling(graph: Graph) -> dict[str, Any]:
    """A generation_config.json with the sampling settings of a GGUF file."""
    found = {}
    for key, field in SAMPLED.items():
        value = graph.metadata.get(f"{GENERAL}sampling.{key}")
        if kind_of(value) in ("i32", "f32"):
            found[field] = SAMPLING[key][1](str(value))
    return {"do_sample": True, **found} if found else {}


def card_file(graph: Graph, architecture: str, generation: Mapping[str, Any]) -> dict[str, Storage]:
    """README.md for the keys of a GGUF file, empty without keys.

    Fields and text of a README.md that came along stay and go before the file's keys.

    Args:
        architecture: what keys of hyper-parameters begin with.
        generation: generation_config.json, which says what it has of them.
    """
    kept = graph.attachments.get(CARD)
    text = "" if kept is None else bytes(kept.read(0, kept.nbytes)).decode("utf-8", "replace")
    own = dict(card_of(graph))
    if kept is not None and not own and text.startswith("---"):
        return {CARD: kept}  # what cannot be read is not rewritten
    own_keys = {f"{GENERAL}{key}": value for key, value in stated({**own, BLOCK: {}}, {}).items()}
    keys = {key: value for key, value in graph.metadata.items() if _carried(key, architecture)} | own_keys
    if not keys:
        return {} if kept is None else {CARD: kept}
    card = {**dict(_fields(keys)), **own}
    block = dict(_rest(graph, keys, stated({**card, BLOCK: {}}, generation), size=LONGEST // 2))
    if kept is not None and {**card, BLOCK: block} == {**own, BLOCK: {}}:
        return {CARD: kept}
    name = printable(" ".join(str(keys.get(f"{GENERAL}name") or "Model").split()))
    body = _body(text) if kept is not None else f"\n# {name}\n\n{_origin(graph)}\n"
    return {CARD: Held((written({**card, BLOCK: block}) + body).encode())}


def carried_keys(graph: Graph, architecture: str) -> dict[str, Meta]:
    """The keys that the block of a card holds, with their types; what cannot be one is noted and left out."""
    block = card_of(graph).get(BLOCK)
    found: dict[str, Meta] = {}
    for key, value in block.items() if isinstance(block, dict) else ():
        try:
            if isinstance(key, str) and _carried(key, architecture):
                found[key] = _value(value)
        except Error as error:
            graph.note(UNREADABLE, f"{key!r} in {CARD} is skipped: {error.why}")
    return found


def with_block(general: Mapping[str, Any], block: Mapping[str, Meta]) -> dict[str, Any]:
    """Keys below ``general.``: a card's, and before them those of its block; of base models and data sets all or
    none."""
    said = {key.removeprefix(GENERAL): value for key, value in block.items() if key.startswith(GENERAL)}
    groups = [f"{source}." for source in SOURCES if any(key.startswith(f"{source}.") for key in said)]
    return {key: value for key, value in general.items() if not key.startswith(tuple(groups))} | said


def _carried(key: str, architecture: str) -> bool:
    """Whether a key describes the model, or its namespace is unknown."""
    if key.startswith(GENERAL):
        return key.removeprefix(GENERAL) not in COMPUTED
    return "." in key and not key.startswith((*OTHERS, f"{architecture}."))


def _fields(keys: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a card."""
    for key, field in FIELDS.items():
        value = keys.get(f"{GENERAL}{key}")
        if kind_of(value) == "str[]" and key in ("languages", "tags"):
            yield field, _listed(value)
        elif isinstance(value, str) and key not in ("languages", "tags"):
            yield field, value.split(",") if key == "license" and "," in value else value
    for source, field in HUB_FIELDS.items():
        ids = list(_ids(keys, source))
        if ids:
            yield field, ids


def _ids(keys: Mapping[str, Any], source: str) -> Iterator[str]:
    """The ids of the hub among models or data sets that a model is made of."""
    count = keys.get(f"{GENERAL}{source}.count")
    numbers = range(min(int(str(count)), len(keys))) if kind_of(count) in ("u32", "i32", "u64", "i64") else ()
    for number in numbers:
        address = keys.get(f"{GENERAL}{source}.{number}.repo_url")
        if isinstance(address, str) and address.startswith(HUB):
            model_id = address.removeprefix(DATASETS if source == "dataset" else HUB).removeprefix(HUB)
            if model_id.count("/") == 1 and model_id.isprintable():
                yield model_id


def _rest(graph: Graph, keys: Mapping[str, Any], said: Mapping[str, Any], size: int) -> Iterator[tuple[str, Any]]:
    """Keys that a card's fields do not restore, as its block stores them."""
    groups = tuple(
        f"{GENERAL}{source}."
        for source in SOURCES
        if _group(keys, f"{GENERAL}{source}.")
        != _group({f"{GENERAL}{key}": value for key, value in said.items()}, f"{GENERAL}{source}.")
    )
    for key, value in keys.items():
        if not key.startswith(groups) and _same(said.get(key.removeprefix(GENERAL)), value) and key.startswith(GENERAL):
            continue
        entry = _entry(value)
        length = len(key) + len(json.dumps(entry))
        if entry is None or length > LARGEST or length > size:
            graph.note(UNREADABLE, f"{key} is skipped: {CARD} cannot represent its value")
            continue
        size -= length
        yield key, entry


def _group(keys: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key: (kind_of(value), readable(value)) for key, value in keys.items() if key.startswith(prefix)}


def _same(a: Meta, b: Meta) -> bool:
    return a is not None and (kind_of(a), _listed(a)) == (kind_of(b), _listed(b))


def _listed(value: Meta) -> Any:
    return [str(item) for item in value] if isinstance(value, list | StringArray) else readable(value)


def _entry(value: Meta) -> Any:
    """A value as a block holds it: texts as they are, anything else as text with its type; None for values without a
    type."""
    kind = kind_of(value)
    if kind == "str":
        return value
    if kind == "str[]":
        return _listed(value)
    if kind in ("bytes", "json", "none"):
        return None
    shown = readable(value)
    return {"type": kind, "value": str(value) if not kind.endswith("[]") else json.dumps(shown)}


def _value(entry: Any) -> Meta:
    """The value of a block, with its type."""
    if isinstance(entry, list) and all(isinstance(item, str) for item in entry):
        return entry
    text, kind = (entry.get("value"), entry.get("type")) if isinstance(entry, dict) else (str(entry), "str")
    if not isinstance(text, str) or not isinstance(kind, str) or kind == "json" or isinstance(entry, list):
        raise UsageError("E-META-VALUE", None, "it is not a string, a list of strings, or a value with its type")
    return typed(text, kind)


def _body(text: str) -> str:
    """The text of a card after its front matter."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip("\r\n") != "---":
        return f"\n{text}"
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip("\r\n") == "---"), len(lines))
    return "".join(lines[end + 1 :])


def _origin(graph: Graph) -> str:
    name = os.path.basename(graph.files[0]) if graph.files else "a GGUF file"
    return f"Converted from `{printable(name).replace('`', '')}` by candle-convert."
