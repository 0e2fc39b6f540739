"""Persimmon (Adept 2023): normalized queries and keys, partial rotary embedding, fused projections interleaved by head,
ungated feed-forward networks with squared ReLU."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm, head_layer_norm
from ..layers.rope import Rotary, Scaling
from ..schema.hyperparameters import (
    DECODER,
    FUSED,
    INTERMEDIATE,
    LAYER_EPS,
    OWN_HEAD_DIM,
    ROTARY,
    THETA,
    act,
    matrix,
    partial,
)
from ..schema.weight_layout import GROUPED

KEYS = (
    *DECODER, Key("kv_heads", (), (), lambda config: config.heads), OWN_HEAD_DIM, INTERMEDIATE, LAYER_EPS,
    THETA, Scaling(), act("relu2"), partial(0.5), ROTARY, FUSED,
)  # fmt: skip
HF, OURS = "model.layers.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "model.embed_tokens", None, shape=("vocab", "hidden")),
    *matrix(f"{OURS}attn_norm", f"{HF}input_layernorm", None, shape=("hidden",)),
    *matrix(f"{OURS}attn.qkv", f"{HF}self_attn.query_key_value", None, hf_layout=GROUPED, shape=("fused", "hidden")),
    *matrix(f"{OURS}attn.q_norm", f"{HF}self_attn.q_layernorm", None, optional=True, shape=("head_dim",)),
    *matrix(f"{OURS}attn.k_norm", f"{HF}self_attn.k_layernorm", None, optional=True, shape=("head_dim",)),
    *matrix(f"{OURS}attn.o", f"{HF}self_attn.dense", None, shape=("hidden", "hidden")),
    *matrix(f"{OURS}mlp_norm", f"{HF}post_attention_layernorm", None, shape=("hidden",)),
    *matrix(f"{OURS}mlp.up", f"{HF}mlp.dense_h_to_4h", None, shape=("intermediate", "hidden")),
    *matrix(f"{OURS}mlp.down", f"{HF}mlp.dense_4h_to_h", None, shape=("hidden", "intermediate")),
    *matrix("norm", "model.final_layernorm", None, shape=("hidden",)),
    *matrix("head", "lm_head", None, optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then an ungated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        h = bias_norm(net, x, f"layers.{i}.attn_norm")
        x = net.Add(x, self_attention(net, h, i, rotary, normed=head_layer_norm))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "persimmon",
        "Persimmon",
        ("persimmon",),
        (),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        defaults={"persimmon": {"max_position_embeddings": 16384}},
    ),
)
