"""The text part of a multimodal checkpoint: the weights of its language model, and the configuration of these.

config.json of such a checkpoint has the language model's in the object ``text_config``. Its weights stand below a
prefix, beside those of encoders of images and audio, which are left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...runtime.base.units import counted
from ...runtime.contract.architecture import Architecture
from ...runtime.contract.weight_binding import named_model_type
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ..open.prequantized import CONFIG, NESTED, configuration

PREFIXES = (
    "model.language_model.", "model.text_model.", "language_model.model.", "language_model.", "embedding_model.",
)  # fmt: skip
"""What the names of a language model's weights begin with inside a multimodal model, in place of ``model.``."""
PLAIN = ("model.embed_tokens.", "model.layers.", "model.norm.")
"""What names begin with where the language model's weights have their own names, as in Qwen2-VL."""
FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""Models whose older files state the language model's configuration without an object of its own: its `model_type`."""
HEADS = ("lm_head.", "score.", "latent_attention_model.")
"""What the names of weights begin with that stand beside the language model."""
OUTER = (
    "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "dtype", "is_causal",
    "latent_attention_config", "is_mask_instruction",
)  # fmt: skip
"""Keys of the whole model that hold for the language model, unless its own configuration has them."""
OWN_CLASSES = ("ForSequenceClassification", "Model")
"""Ends of classes, other than those that generate text, that the language model has in common with the whole."""
QWEN2_VL = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
    },
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
    },
    "qwen2_vl_text": QWEN2_VL, "qwen2_5_vl_text": QWEN2_VL,
    "qwen3_vl_text": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000,
        "rms_norm_eps": 1e-6, "rope_theta": 500000.0,
    },
    "qwen2": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
}  # fmt: skip
"""What a nested configuration leaves out, by its `model_type`: defaults of transformers' classes."""


def text_part(graph: Graph) -> Graph:
    """The language model of a multimodal checkpoint as a graph of its own, with a note of what is left out; `graph`
    itself for every other model, and for multimodal ones that an architecture describes whole."""
    stated = None if graph.nodes else configuration(graph)
    nested = _language_model(stated or {})
    if stated is None or not isinstance(nested, Mapping) or _known(stated.get("model_type")):
        return graph
    kind = nested.get("model_type")
    names = {name: inner for name in graph.weights if (inner := inner_name(name)) is not None}
    if not _known(kind) or not any(not name.startswith(HEADS) for name in names):
        return graph
    made = dataclasses.replace(
        graph,
        weights={inner: graph.weights[name] for name, inner in names.items()},
        attachments=dict(graph.attachments),
        notes=list(graph.notes),
    )
    config = {**_outer(stated), **DEFAULTS.get(str(kind), {}), **nested}
    made.attachments[CONFIG] = Held(json.dumps(config, indent=2, ensure_ascii=False).encode())
    left = [name for name in graph.weights if name not in names]
    if left:
        made.note("W-ARCH-TEXT", _told(stated, graph, left))
    return made


def _language_model(stated: Mapping[str, Any]) -> Any:
    """The configuration of the language model, None if it is not stated."""
    kind = stated.get("model_type")
    if NESTED in stated or kind not in FLAT:
        return stated.get(NESTED)
    return {**{key: value for key, value in stated.items() if key != "architectures"}, "model_type": FLAT[kind]}


def inner_name(name: str) -> str | None:
    """The name of a weight in the language model's own checkpoint; None for weights of other parts."""
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
    if prefix is None:
        return name if name.startswith((*HEADS, *PLAIN)) else None
    inner = name.removeprefix(prefix)
    return inner if inner.startswith(HEADS) else f"model.{inner}"


def outer_names(names: Iterable[str]) -> dict[str, str]:
    """The names in a multimodal checkpoint, by those that `text_part` gives."""
    return {inner: name for name in names if (inner := inner_name(name)) is not None}


def _known(kind: Any) -> Architecture | None:
    return named_model_type(kind) if isinstance(kind, str) else None


def _outer(stated: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: stated[key] for key in OUTER if key in stated}
    classes = stated.get("architectures")
    if isinstance(classes, list) and classes and str(classes[0]).endswith(OWN_CLASSES):
        found["architectures"] = classes
    return found


def _told(stated: Mapping[str, Any], graph: Graph, left: list[str]) -> str:
    nbytes = sum(graph.weights[name].nbytes for name in left)
    parts = sorted({name.removeprefix("model.").split(".")[0] for name in left})
    what = f"{counted(len(left), 'weight')} of {', '.join(parts)} ({nbytes:,} bytes) are skipped"
    return f"only the text part of {stated.get('model_type')} is used; {what}"
