"""Configurations of OpenCLIP, open_clip_config.json or none, as those of transformers' CLIP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.contract.hyperparameter import checked, mapping
from ....runtime.ir.graph import Graph
from ...preprocess.open_clip_transform import FILE
from ...tokenizer.readers.locate import settings
from ..network_hyperparameters import count_of
from .towers import BLOCK

HEAD_WIDTH = 64
"""Channels of a head that no file states."""
LARGEST_ID_ENDS = 2
"""The `eos_token_id` that stands for the token with the largest id of the vocabulary."""


def text_config(graph: Graph, prefix: str) -> dict[str, Any]:
    """The configuration of a text tower; `prefix`: of the names of its weights."""
    stated = _stated(graph, "text_cfg")
    vocab, hidden = graph.weights[f"{prefix}token_embedding.weight"].shape
    return {
        "model_type": "clip_text_model",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "max_position_embeddings": graph.weights[f"{prefix}positional_embedding"].shape[0],
        "num_hidden_layers": count_of(graph.weights, f"{prefix}{BLOCK}ln_1.weight"),
        "num_attention_heads": stated.get("heads", max(1, hidden // HEAD_WIDTH)),
        "intermediate_size": graph.weights[f"{prefix}transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        "hidden_act": _activation(graph),
        "eos_token_id": LARGEST_ID_ENDS,
        "projection_dim": projection_width(graph, prefix),
        **({"is_causal": False} if stated.get("no_causal_mask") else {}),
    }


def vision_config(graph: Graph) -> dict[str, Any]:
    """The configuration of the vision transformer ``visual``."""
    stated = _stated(graph, "vision_cfg")
    hidden, _, patch, _ = graph.weights["visual.conv1.weight"].shape
    size = {"image_size": stated["image_size"]} if "image_size" in stated else {}
    return {
        "model_type": "clip_vision_model",
        "hidden_size": hidden,
        "num_attention_heads": max(1, hidden // (stated.get("head_width") or HEAD_WIDTH)),
        "patch_size": patch,
        "hidden_act": _activation(graph),
        **size,
    }


def projection_width(graph: Graph, prefix: str) -> int:
    """Elements of the vectors that texts and pictures have."""
    return int(graph.weights[f"{prefix}text_projection"].shape[-1])


def _activation(graph: Graph) -> str:
    said = checked("model_cfg", settings(graph, FILE).get("model_cfg") or {}, mapping)
    return "quick_gelu" if said.get("quick_gelu") else "gelu"


def _stated(graph: Graph, tower: str) -> Mapping[str, Any]:
    said = checked("model_cfg", settings(graph, FILE).get("model_cfg") or {}, mapping)
    found: Mapping[str, Any] = checked(tower, said.get(tower) or {}, mapping)
    return found
