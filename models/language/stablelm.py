"""StableLM 3B 4E1T, StableLM 2 and Stable Code (arXiv:2402.17834): layer norms, rotary embedding of part of each
head."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key, Stored, Weight
from ...runtime.contract.hyperparameter import flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import bias_norm, own_head_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, NORM, attention
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    LAYER_EPS,
    ROTARY,
    THETA,
    act,
    matrix,
    partial,
)
from ..schema.weight_layout import Stacked

KEYS = (
    *DECODER, KV_HEADS, HF_HEAD_DIM, INTERMEDIATE, LAYER_EPS, THETA, Scaling(),
    act("silu"), partial(0.25), ROTARY,
    Key("parallel", "use_parallel_residual", "use_parallel_residual", False, flag),
)  # fmt: skip
SELF = "model.layers.{i}.self_attn."
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(),
    Weight(
        "layers.{i}.attn.q_norm.weight",
        Stored((SELF + "q_layernorm.norms.{e}.weight",), Stacked(), "heads"),
        "blk.{i}.attn_q_norm.weight",
        shape=("heads", "head_dim"),
        optional=True,
    ),
    Weight(
        "layers.{i}.attn.k_norm.weight",
        Stored((SELF + "k_layernorm.norms.{e}.weight",), Stacked(), "kv_heads"),
        "blk.{i}.attn_k_norm.weight",
        shape=("kv_heads", "head_dim"),
        optional=True,
    ),
    *matrix(
        "layers.{i}.mlp_norm",
        "model.layers.{i}.post_attention_layernorm",
        "blk.{i}.ffn_norm",
        when=lambda config, i: not config.parallel,
        shape=("hidden",),
    ),
    *GATED,
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers; the 12B model computes attention and feed-forward network in parallel."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        name = f"layers.{i}"
        h = bias_norm(net, x, f"{name}.attn_norm")
        y = net.Add(x, self_attention(net, h, i, rotary, normed=own_head_norm))
        h = h if config.parallel else bias_norm(net, y, f"{name}.mlp_norm")
        x = net.Add(y, gated(net, h, f"{name}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "stablelm",
        "StableLM, Stable Code",
        ("stablelm",),
        ("stablelm",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required=OWN_HEAD,
        defaults={"stablelm": {"max_position_embeddings": 4096}},
    ),
)
