"""Hugging Face tokenizer files, loadable by transformers, from the tokenizer of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....runtime.ir.graph import Graph
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import NORMAL, escaped_bytes
from ..readers.gguf import from_gguf
from ..readers.gguf_engines import PREFIX
from ..readers.tokenizer_json import CompanionFiles, from_json
from .tokenizer_differences import differences
from .tokenizer_json import library_json

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
TURNS = ("eos", "eot", "eom")
"""Roles of tokens that end what a model says."""


def hf_files(graph: Graph, context: int | None = None) -> dict[str, bytes]:
    """The files by name, none where the metadata has no vocabulary; what tokenizes differently than before is noted on
    the graph.

    Args:
        context: tokens that the model was trained for.
    """
    if f"{PREFIX}tokens" not in graph.metadata:
        return {}
    path = graph.files[0] if graph.files else None
    tokenizer = from_gguf(graph.metadata, path)
    content = library_json(tokenizer, graph.metadata)
    found = {
        f"chat_template{'' if name == 'default' else f'.{name}'}.jinja": text.encode()
        for name, text in tokenizer.templates.items()
    }
    names = _names(tokenizer)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context or 10**30,
        "add_bos_token": bool(tokenizer.opening),
        "add_eos_token": bool(tokenizer.closing),
    }
    found |= {"special_tokens_map.json": _json(names), "generation_config.json": _json(generation_config(tokenizer))}
    if content is None:
        return found | {"rwkv_vocab_v20230424.txt": _rwkv(tokenizer)}
    text = json.dumps(content, ensure_ascii=False)
    again = from_json(text, CompanionFiles(config, names, {}, {}), {}, path)
    lost = differences(tokenizer, again)
    if lost:
        graph.note("W-TOKENIZER-DIFFERS", f"tokenizer.json gives {'; '.join(lost)}")
    return found | {"tokenizer.json": text.encode(), "tokenizer_config.json": _json(config)}


def generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Ids that begin, end and fill what a model says."""
    roles = tokenizer.vocabulary.roles
    ends = list(dict.fromkeys(roles[role] for role in TURNS if role in roles))
    found: dict[str, Any] = {f"{role}_token_id": roles[role] for role in ("bos", "pad") if role in roles}
    return found | ({"eos_token_id": ends[0] if len(ends) == 1 else ends} if ends else {})


def _names(tokenizer: Tokenizer) -> dict[str, str]:
    vocabulary = tokenizer.vocabulary
    return {f"{role}_token": vocabulary.texts[vocabulary.roles[role]] for role in ROLES if role in vocabulary.roles}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def _rwkv(tokenizer: Tokenizer) -> bytes:
    """RWKV's own file, which leaves out the first token, and those that only fill up an embedding."""
    lines = []
    vocabulary = tokenizer.vocabulary
    last = max((token for token, kind in enumerate(vocabulary.kinds) if kind == NORMAL), default=0)
    for token, text in enumerate(vocabulary.texts[1 : last + 1], 1):
        data = escaped_bytes(text)
        try:
            literal = repr(data.decode())
        except UnicodeDecodeError:
            literal = repr(data)
        lines.append(f"{token} {literal} {len(data)}\n")
    return "".join(lines).encode()
