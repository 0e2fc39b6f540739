"""BitNet b1.58 2B (Ma et al. 2025, arXiv:2504.12285): a Llama with norms inside the attention and the feed-forward
network, whose activation is a squared ReLU.

GGUF files have no head of its own, and state the activation; those that do not are of earlier models, with SiLU. Older
versions of llama.cpp do not read the key.
"""

from __future__ import annotations

from collections.abc import Collection

from ...runtime.contract.architecture import HF, Architecture, Config
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import attend, projected
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.activation import activation
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import BIAS, Unread
from ..schema.hyperparameters import (
    DECODER,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    TOKENS,
    WHOLE_ROTARY,
    ActivationKey,
    frequency_base,
    matrix,
)

KEYS = (
    *DECODER, KV_HEADS, HF_HEAD_DIM, INTERMEDIATE, RMS_EPS_5, frequency_base(5e5), Scaling(),
    WHOLE_ROTARY, TOKENS,
    ActivationKey("act", "hidden_act", "hidden_activation", lambda config: "relu2" if config.names == HF else "silu",
                  activation),
)  # fmt: skip
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(),
    *matrix(
        "layers.{i}.attn.o_norm",
        "model.layers.{i}.self_attn.attn_sub_norm",
        "blk.{i}.attn_sub_norm",
        shape=("heads*head_dim",),
    ),
    *MLP_NORM,
    *GATED,
    *matrix(
        "layers.{i}.mlp.down_norm", "model.layers.{i}.mlp.ffn_sub_norm", "blk.{i}.ffn_sub_norm", shape=("intermediate",)
    ),
    *NORM,
    *matrix("head", "lm_head", None, optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network; the input of each last
    projection is normalized."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, _attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, _feed_forward(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp"))
    net.end(x, norm)


def _attention(net: Decoder, x: Value, i: int, rotary: Rotary) -> Value:
    config, name = net.config, f"layers.{i}.attn"
    q, k, v = projected(net, x, name)
    q, k = rotary.rotate(net, q, config.heads, net.positions), rotary.rotate(net, k, config.kv_heads, net.positions)
    return linear(net, norm(net, attend(net, q, k, v, i), f"{name}.o_norm"), f"{name}.o")


def _feed_forward(net: Decoder, x: Value, name: str) -> Value:
    gate, up = linear(net, x, f"{name}.gate"), linear(net, x, f"{name}.up")
    y = net.Mul(ACTIVATIONS[net.config.act](net, gate), up)
    return linear(net, norm(net, y, f"{name}.down_norm"), f"{name}.down")


def _activation(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models with another activation than SiLU."""
    return None if config.act == "silu" else "computes SiLU in versions that do not read hidden_activation"


ARCHITECTURES = (
    Architecture("bitnet", "BitNet", ("bitnet",), ("bitnet",), KEYS, WEIGHTS, decoder_tasks(build),
                 deviations=(Unread(BIAS), _activation), defaults={"bitnet": {"num_key_value_heads": 5}}),
)  # fmt: skip
