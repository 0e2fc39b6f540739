"""Qwen 1.5, 2, 2.5 (arXiv:2407.10671) and 3 (arXiv:2505.09388), dense: biases on queries, keys and values (1.5 to 2.5),
or normalized queries and keys (3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..pipelines.diffusion.penultimate_state import conditioning_task
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, QK_NORM, attention
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.hyperparameters import (
    CAUSAL,
    DECODER,
    HEAD_DIM,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS,
    THETA,
    VALUE_DIM,
    SwitchedWindows,
    act,
)

UNWINDOWED = ("qwen3_vl_text",)
"""Model types whose layers all have full attention in transformers, whatever config.json says of windows."""


@dataclass(frozen=True)
class LaterWindows(SwitchedWindows):
    """Hyper-parameter: windows of the layers from ``max_window_layers`` on."""

    slides: Callable[[Config, int], bool] = lambda config, i: i >= config.full_layers

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        if names == HF and source.get("model_type") in UNWINDOWED:
            return [None] * config.layers
        return super().read(names, source, config)


KEYS = (
    *DECODER, KV_HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("full_layers", "max_window_layers", (), lambda config: config.layers),
    LaterWindows(), CAUSAL,
)  # fmt: skip
QWEN2_KEYS = (*KEYS, HF_HEAD_DIM)
QWEN3_KEYS = (*KEYS, HEAD_DIM, VALUE_DIM)

WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
        x = net.with_features(x, i)
    net.end(x, norm)


QWEN2_TYPES, QWEN3_TYPES = ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"), ("qwen3", "qwen3_vl_text")
"""With the text parts of vision-language models, whose multimodal RoPE is RoPE where all tokens are text."""
QWEN2_VL = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
QWEN2_SIZES: Mapping[str, Mapping[str, Any]] = {
    "qwen2": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "qwen2_vl_text": QWEN2_VL, "qwen2_5_vl_text": QWEN2_VL,
}  # fmt: skip
QWEN3_SIZES: Mapping[str, Mapping[str, Any]] = {
    "qwen3_vl_text": {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
}  # fmt: skip
QWEN2_VL_DEFAULTS = {
    "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
}  # fmt: skip
QWEN2_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "qwen2": {"max_position_embeddings": 32768, "max_window_layers": 28},
    "qwen2_vl_text": QWEN2_VL_DEFAULTS,
    "qwen2_5_vl_text": QWEN2_VL_DEFAULTS,
}
QWEN3_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {"head_dim": 128, "max_position_embeddings": 32768, "max_window_layers": 28},
    "qwen3_vl_text": {"head_dim": 128, "max_position_embeddings": 128000, "rope_theta": 5e5},
}
ARCHITECTURES = (
    Architecture(
        "qwen2",
        "Qwen 1.5, 2, 2.5",
        QWEN2_TYPES,
        ("qwen2", "qwen2vl"),
        QWEN2_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        nested_defaults=QWEN2_SIZES,
        defaults=QWEN2_DEFAULTS,
    ),
    Architecture(
        "qwen3",
        "Qwen 3",
        QWEN3_TYPES,
        ("qwen3", "qwen3vl"),
        QWEN3_KEYS,
        (*WEIGHTS, *QK_NORM),
        (*decoder_tasks(build), conditioning_task(build)),
        deviations=(Unread(PROJECTION_BIAS),),
        nested_defaults=QWEN3_SIZES,
        defaults=QWEN3_DEFAULTS,
    ),
)
