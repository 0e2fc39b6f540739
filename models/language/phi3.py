"""Phi-3, 3.5 and 4 (Abdin et al. 2024, arXiv:2404.14219): a Llama with fused projections, sliding windows and
LongRoPE."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated_fused
from ..layers.norm import norm
from ..layers.rope import LONGROPE, LONGROPE_FACTORS, Rotary, Scaling, settle_longrope
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM
from ..schema.gguf.deviations import factors_by_context, ignored_windows
from ..schema.hyperparameters import (
    DECODER,
    DOUBLE,
    FUSED,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    ROTARY,
    ROTARY_PAIRS,
    THETA,
    Windows,
    act,
    matrix,
    partial,
)

KEYS = (
    *DECODER,
    KV_HEADS,
    HF_HEAD_DIM,
    INTERMEDIATE,
    RMS_EPS_5,
    THETA,
    act("silu"),
    Scaling(),
    partial(),
    ROTARY,
    ROTARY_PAIRS,
    FUSED,
    DOUBLE,
    Windows(always=True),
    *LONGROPE,
)
WEIGHTS = (
    *LONGROPE_FACTORS,
    *EMBED,
    *ATTN_NORM,
    *matrix(
        "layers.{i}.attn.qkv", "model.layers.{i}.self_attn.qkv_proj", "blk.{i}.attn_qkv", shape=("fused", "hidden")
    ),
    *matrix(
        "layers.{i}.attn.o",
        "model.layers.{i}.self_attn.o_proj",
        "blk.{i}.attn_output",
        shape=("hidden", "heads*head_dim"),
    ),
    *MLP_NORM,
    *matrix("layers.{i}.mlp.both", "model.layers.{i}.mlp.gate_up_proj", "blk.{i}.ffn_up", shape=("double", "hidden")),
    *matrix(
        "layers.{i}.mlp.down", "model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")
    ),
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)

    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(
            x,
            gated_fused(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act, config.intermediate),
        )
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "phi3",
        "Phi 3, 3.5, 4",
        ("phi3",),
        ("phi3",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle_longrope,
        deviations=(ignored_windows, factors_by_context),
        defaults={
            "phi3": {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "pad_token_id": 32000}
        },
    ),
)
