"""Qwen 1.5, 2, 2.5 (arXiv:2407.10671) and 3 (arXiv:2505.09388), dense: biases on queries, keys and values, or norms of queries and keys."""

from __future__ import annotations

from ..runtime.arch import Architecture, Key
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mlp import gated
from .layers.norm import norm
from .layers.parts import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, QK_NORM, attention
from .layers.rope import Rotary, Scaling
from .layers.rows import DECODER, HEAD_DIM, HF_HEAD_DIM, INTERMEDIATE, KV_HEADS, RMS_EPS, THETA, VALUE_DIM, Windows, act

KEYS = (
    *DECODER, KV_HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("full_layers", "max_window_layers", (), lambda config: config.layers),
    Windows(lambda config, i: i >= config.full_layers),
)  # fmt: skip
QWEN2_KEYS = (*KEYS, HF_HEAD_DIM)
QWEN3_KEYS = (*KEYS, HEAD_DIM, VALUE_DIM)

WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers of attention with rotary embedding, and gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture("qwen2", "Qwen 1.5, 2, 2.5", ("qwen2",), ("qwen2",), QWEN2_KEYS, WEIGHTS, build),
    Architecture("qwen3", "Qwen 3", ("qwen3",), ("qwen3",), QWEN3_KEYS, (*WEIGHTS, *QK_NORM), build),
)
