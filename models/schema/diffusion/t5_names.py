"""T5's encoder in single files of Stable Diffusion 3 and FLUX.1: its configuration from the shapes of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.contract.architecture import Config
from ....runtime.tensor.stored_tensor import StoredTensor

BLOCK = "encoder.block."


def t5_config(weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The config.json of T5 1.1's encoder by transformers' names. KeyError for other files."""
    vocabulary, width = weights["shared.weight"].shape
    _, heads = weights[f"{BLOCK}0.layer.0.SelfAttention.relative_attention_bias.weight"].shape
    return {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": weights[f"{BLOCK}0.layer.0.SelfAttention.q.weight"].shape[0] // max(heads, 1),
        "d_ff": weights[f"{BLOCK}0.layer.1.DenseReluDense.wi_0.weight"].shape[0],
        "num_heads": heads,
        "num_layers": 1
        + max(int(name.removeprefix(BLOCK).split(".")[0]) for name in weights if name.startswith(BLOCK)),
        "feed_forward_proj": "gated-gelu",
        "is_encoder_decoder": False,
        "tie_word_embeddings": False,
    }


def t5_settings(config: Config) -> dict[str, Any]:
    """Hyper-parameters that the encoder's weights do not show, by the keys of config.json."""
    return {
        "model_type": config.model_type,
        "layer_norm_epsilon": config.eps,
        "relative_attention_max_distance": config.farthest,
        "feed_forward_proj": config.feed_forward,
    }
