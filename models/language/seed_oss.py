"""Seed-OSS (ByteDance): a Llama with biases on queries, keys and values."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, NORM, attention
from ..schema.gguf.deviations import Unread
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, RMS_EPS, THETA, act, matrix

KEYS = (*DECODER, *HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"))
WEIGHTS = (
    *EMBED, *ATTN_NORM, *attention(),
    *matrix("layers.{i}.mlp_norm", "model.layers.{i}.post_attention_layernorm", "blk.{i}.post_attention_norm",
            shape=("hidden",)),
    *GATED, *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "seed_oss",
        "Seed-OSS",
        ("seed_oss",),
        ("seed_oss",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        deviations=(Unread(r"\.(ffn_\w+|attn_output)\.bias$"),),
        defaults={
            "seed_oss": {
                "head_dim": 128,
                "num_key_value_heads": 8,
                "max_position_embeddings": 524288,
                "pad_token_id": 1,
            }
        },
    ),
)
