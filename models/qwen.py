"""Qwen 1.5, 2, 2.5 (arXiv:2407.10671) and 3 (arXiv:2505.09388), dense: biases on queries, keys and values, or norms of queries and keys."""

from __future__ import annotations

from ..runtime.arch import Architecture, Key
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mlp import gated
from .layers.norm import norm
from .layers.rope import Rotary, Scaling
from .layers.rows import DECODER, HEAD_DIM, INTERMEDIATE, KV_HEADS, RMS_EPS, THETA, VALUE_DIM, Windows, act, matrix

KEYS = (
    *DECODER, KV_HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("full_layers", "max_window_layers", (), lambda config: config.layers),
    Windows(lambda config, i: i >= config.full_layers),
)  # fmt: skip
QWEN2_KEYS = (*KEYS, Key("head_dim", "head_dim", (), lambda config: config.hidden // config.heads))
QWEN3_KEYS = (*KEYS, HEAD_DIM, VALUE_DIM)

WEIGHTS = (
    *matrix("embed", "model.embed_tokens", "token_embd", shape=("vocab", "hidden")),
    *matrix("layers.{i}.attn_norm", "model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    *matrix("layers.{i}.attn.q", "model.layers.{i}.self_attn.q_proj", "blk.{i}.attn_q", shape=("heads*head_dim", "hidden")),
    *matrix("layers.{i}.attn.k", "model.layers.{i}.self_attn.k_proj", "blk.{i}.attn_k", shape=("kv_heads*head_dim", "hidden")),
    *matrix("layers.{i}.attn.v", "model.layers.{i}.self_attn.v_proj", "blk.{i}.attn_v", shape=("kv_heads*head_dim", "hidden")),
    *matrix("layers.{i}.attn.q_norm", "model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm", optional=True),
    *matrix("layers.{i}.attn.k_norm", "model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm", optional=True),
    *matrix("layers.{i}.attn.o", "model.layers.{i}.self_attn.o_proj", "blk.{i}.attn_output", shape=("hidden", "heads*head_dim")),
    *matrix("layers.{i}.mlp_norm", "model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    *matrix("layers.{i}.mlp.gate", "model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.up", "model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", "model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "model.norm", "output_norm"),
    *matrix("head", "lm_head", "output", optional=True),
)


def build(net: Decoder) -> None:
    """Pre-norm layers of attention with rotary embedding, and gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, net.visible(window)))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture("qwen2", "Qwen 1.5, 2, 2.5", ("qwen2",), ("qwen2",), QWEN2_KEYS, WEIGHTS, build),
    Architecture("qwen3", "Qwen 3", ("qwen3",), ("qwen3",), QWEN3_KEYS, WEIGHTS, build),
)
