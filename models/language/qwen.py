"""Qwen 1.5, 2, 2.5 (arXiv:2407.10671) and 3 (arXiv:2505.09388), dense: biases on queries, keys and values (1.5 to 2.5),
or normalized queries and keys (3)."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
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
    Windows,
    act,
)

KEYS = (
    *DECODER, KV_HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("full_layers", "max_window_layers", (), lambda config: config.layers),
    Windows(lambda config, i: i >= config.full_layers), CAUSAL,
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
    net.end(x, norm)


QWEN2_TYPES, QWEN3_TYPES = ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"), ("qwen3", "qwen3_vl_text")
"""With the text parts of vision-language models, whose multimodal RoPE is RoPE where all tokens are text."""
ARCHITECTURES = (
    Architecture("qwen2", "Qwen 1.5, 2, 2.5", QWEN2_TYPES, ("qwen2",), QWEN2_KEYS, WEIGHTS, decoder_tasks(build)),
    Architecture(
        "qwen3",
        "Qwen 3",
        QWEN3_TYPES,
        ("qwen3",),
        QWEN3_KEYS,
        (*WEIGHTS, *QK_NORM),
        decoder_tasks(build),
        deviations=(Unread(PROJECTION_BIAS),),
    ),
)
