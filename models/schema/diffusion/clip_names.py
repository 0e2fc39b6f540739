"""CLIP's text encoders in single files of Stable Diffusion: configurations from the shapes of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.contract.architecture import Config
from ....runtime.tensor.stored_tensor import StoredTensor
from ..clip.open_clip import LARGEST_ID_ENDS

HEAD_DIM = 64
PROJECTION = "text_projection.weight"
LAYER, BLOCK = "text_model.encoder.layers.", "transformer.resblocks."
"""Prefixes of names in layers: transformers' and OpenCLIP's."""


def clip_config(weights: Mapping[str, StoredTensor], act: str = "quick_gelu") -> dict[str, Any]:
    """The config.json of an encoder with transformers' names, as OpenAI's CLIP is stored. KeyError for other files."""
    embedding = weights["text_model.embeddings.token_embedding.weight"].shape
    return _config(
        embedding,
        _layers(weights, LAYER),
        weights["text_model.encoder.layers.0.mlp.fc1.weight"].shape[0],
        PROJECTION in weights,
        act,
    )


def with_projection(weights: Mapping[str, StoredTensor]) -> Mapping[str, StoredTensor]:
    """The weights of an encoder with transformers' names, with a projection that changes nothing where they lack
    one. KeyError for other files."""
    if PROJECTION in weights:
        return weights
    table = weights["text_model.embeddings.token_embedding.weight"]
    return {**weights, PROJECTION: StoredTensor.of(np.eye(table.shape[1], dtype=np.float32))}


def open_clip_config(weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The config.json of an encoder with OpenCLIP's names, which has a projection. KeyError for other files."""
    return _config(
        weights["token_embedding.weight"].shape,
        _layers(weights, BLOCK),
        weights["transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        True,
        "gelu",
    )


def _config(embedding: Any, layers: int, intermediate: int, projected: bool, act: str) -> dict[str, Any]:
    vocabulary, width = embedding
    return {
        "architectures": ["CLIPTextModelWithProjection" if projected else "CLIPTextModel"],
        "model_type": "clip_text_model",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": max(width // HEAD_DIM, 1),
        "max_position_embeddings": 77,
        "hidden_act": act,
        "projection_dim": width,
        "layer_norm_eps": 1e-5,
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": 1,
    }


def _layers(weights: Mapping[str, StoredTensor], prefix: str) -> int:
    return 1 + max(int(name.removeprefix(prefix).split(".")[0]) for name in weights if name.startswith(prefix))


def clip_settings(config: Config) -> dict[str, Any]:
    """Hyper-parameters that a text encoder's weights do not show, by the keys of config.json."""
    return {
        "num_attention_heads": config.heads,
        "hidden_act": config.act,
        "layer_norm_eps": config.eps,
        "eos_token_id": config.vocab - 1 if config.end == LARGEST_ID_ENDS else config.end,
    }
