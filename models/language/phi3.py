"""Phi-3, 3.5 and 4 (Abdin et al. 2024, arXiv:2404.14219): a Llama with fused projections, sliding windows and
LongRoPE."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import POSITIVE
from ...runtime.tensor.tensor import Tensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated_fused
from ..layers.norm import norm
from ..layers.rope import ORIGINAL, Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM
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


def _attention_factor(config: Config) -> float | None:
    """Scale of queries and keys under LongRoPE, or None."""
    if config.scaling["type"] != "longrope":
        return None
    scale = config.context / config.original
    return math.sqrt(1 + math.log(scale) / math.log(config.original)) if scale > 1 else 1.0


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
    Key(
        "original",
        ("original_max_position_embeddings", "rope_parameters.original_max_position_embeddings"),
        "rope.scaling.original_context_length",
        lambda config: config.context,
        ORIGINAL,
    ),
    Key("attention_factor", (), "rope.scaling.attn_factor", _attention_factor, POSITIVE),
)


def _factors(kind: str) -> Weight:
    def value(config: Config) -> Tensor | None:
        factors = config.scaling.get(f"{kind}_factor")
        return None if factors is None else Tensor.of(np.asarray(factors, np.float32))

    return Weight(
        f"rope.{kind}", (), f"rope_factors_{kind}.weight", shape=("rotary_pairs",), optional=True, compute=value
    )


def settle(config: Config, weights: Mapping[str, Tensor]) -> None:
    """Derive the RoPE scaling from the stored factors."""
    there = [name for name in ("rope.long", "rope.short") if name in weights]
    if len(there) == 1 or (config.scaling["type"] == "longrope" and not there):
        raise FormatError(
            "E-ARCH-ROPE", config.path, "longrope needs both rope_factors_long.weight and rope_factors_short.weight"
        )
    if there and "long_factor" not in config.scaling:
        lists = {f"{kind}_factor": weights[f"rope.{kind}"].numpy().tolist() for kind in ("long", "short")}
        config.values["scaling"] = {"type": "longrope", "original_max_position_embeddings": config.original, **lists}


WEIGHTS = (
    _factors("long"),
    _factors("short"),
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
    Architecture("phi3", "Phi 3, 3.5, 4", ("phi3",), ("phi3",), KEYS, WEIGHTS, decoder_tasks(build), settle=settle),
)
