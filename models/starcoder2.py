"""StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173): layer norms, biases everywhere, a window."""

from __future__ import annotations

from ..runtime.arch import Architecture, Key
from ..runtime.parameter import NOT_NEGATIVE
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mlp import plain
from .layers.norm import bias_norm
from .layers.parts import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, attention
from .layers.rope import Rotary, Scaling
from .layers.rows import DECODER, HF_HEAD_DIM, INTERMEDIATE, THETA, Windows, act, key_heads, matrix

KEYS = (
    *DECODER, key_heads(default=2), INTERMEDIATE, THETA, Scaling(), act("gelu_tanh"),
    HF_HEAD_DIM,
    Key("eps", ("norm_epsilon", "layer_norm_epsilon"), "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE), Windows(),
)  # fmt: skip
WEIGHTS = (
    *EMBED, *ATTN_NORM, *attention(), *MLP_NORM,
    *matrix("layers.{i}.mlp.up", "model.layers.{i}.mlp.c_fc", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", "model.layers.{i}.mlp.c_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers of attention with rotary embedding, and feed-forward networks."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (Architecture("starcoder2", "StarCoder2", ("starcoder2",), ("starcoder2",), KEYS, WEIGHTS, build),)
