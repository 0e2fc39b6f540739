"""Tokenizer conversion between the files of a model directory and the keys of a GGUF file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...models.tokenizer.writers.gguf_keys import gguf_metadata
from ...models.tokenizer.writers.hf_files import hf_files
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage

if TYPE_CHECKING:
    from ..load.bind import Model

EMBEDDING = "token_embd.weight"
TEMPLATE = "chat_template.jinja"


def keys_for_gguf(graph: Graph, model: Model) -> dict[str, Meta]:
    """The tokenizer's keys, for weights that have GGUF's names already; none without tokenizer files."""
    architecture = model.architecture.gguf[0]
    embedding = graph.weights.get(EMBEDDING)
    kinds = model.config.values.get("types")
    types = None if kinds is None else max(1, kinds)
    found = gguf_metadata(graph, architecture, None if embedding is None else embedding.shape[0], types)
    if not found:
        graph.note("W-TOKENIZER-NONE", "no tokenizer files found; programs that read the output cannot encode text")
    return found


def files_for_hf(graph: Graph, context: int | None) -> dict[str, Storage]:
    """The tokenizer's files for a graph of a GGUF file; a chat template that somebody gave goes before the file's
    own."""
    given = graph.attachments.get(TEMPLATE)
    found: dict[str, Storage] = {name: Held(content) for name, content in hf_files(graph, context).items()}
    return found | ({TEMPLATE: given} if given is not None else {})


def role_ids(files: dict[str, Storage]) -> dict[str, Any]:
    """The ids of BOS, EOS and padding for a config.json, as the files say them."""
    if "generation_config.json" not in files:
        return {}
    storage = files["generation_config.json"]
    said = json.loads(bytes(storage.read(0, storage.nbytes)))
    return {
        key: value[0] if isinstance(value, list) else value for key, value in said.items() if key.endswith("_token_id")
    }
