"""Apertus (Swiss AI Initiative 2025, arXiv:2509.14233): a Llama with normalized queries and keys, and ungated
feed-forward networks whose activation xIELU has learned parameters (Huang and Schlag 2024, arXiv:2411.13010)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key, Row, Stored, Weight
from ...runtime.contract.hyperparameter import REAL, Choice, Listed
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.norm import norm
from ..layers.rope import LLAMA3_FACTORS, Rotary, Scaling, settle_llama3
from ..schema.decoder_weights import EMBED, HEAD, NORM, QK_NORM, UNGATED, attention
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    ROTARY_PAIRS,
    TOKENS,
    WHOLE_ROTARY,
    frequency_base,
    matrix,
)
from ..schema.rope.stated_parameters import RopeSection
from ..schema.weight_layout import Elements

XIELU = {"alpha_n": (1,), "alpha_p": (1,), "beta": (), "eps": ()}
"""Parameters of the activation in each layer, with their shapes in Hugging Face's files; GGUF files store them as
metadata."""
ROPE = RopeSection(
    default={
        "rope_type": "llama3",
        "rope_theta": 1.2e7,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
)
KEYS: tuple[Row, ...] = (
    *DECODER, *HEADS, INTERMEDIATE, RMS_EPS_5, frequency_base(1.2e7, ROPE), Scaling(section=ROPE), WHOLE_ROTARY,
    ROTARY_PAIRS, TOKENS, Key("act", "hidden_act", (), "xielu", Choice(("xielu",))),
    *(Key(f"xielu_{name}", (), f"xielu.{name}", None, Listed(REAL, 1)) for name in XIELU),
)  # fmt: skip


def _parameter(name: str, shape: tuple[int, ...]) -> Weight:
    """Binding of ``xielu.NAME`` [layers]."""
    stored = Stored((f"model.layers.{{e}}.mlp.act_fn.{name}",), Elements(shape), experts="layers")

    def stated(config: Config) -> StoredTensor | None:
        values = getattr(config, f"xielu_{name}")
        return None if values is None else StoredTensor.of(np.array(values, np.float32))

    return Weight(f"xielu.{name}", stored, shape=("layers",), optional=True, compute=stated)


WEIGHTS = (
    LLAMA3_FACTORS,
    *(_parameter(name, shape) for name, shape in XIELU.items()),
    *EMBED,
    *matrix("layers.{i}.attn_norm", "model.layers.{i}.attention_layernorm", "blk.{i}.attn_norm", shape=("hidden",)),
    *attention(),
    *QK_NORM,
    *matrix("layers.{i}.mlp_norm", "model.layers.{i}.feedforward_layernorm", "blk.{i}.ffn_norm", shape=("hidden",)),
    *UNGATED,
    *NORM,
    *HEAD,
)


def settle(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Take the parameters of the activation from the weights, and the RoPE scaling from its factors."""
    settle_llama3(config, weights)
    for name in XIELU:
        if f"xielu.{name}" in weights:
            config.values[f"xielu_{name}"] = weights[f"xielu.{name}"].numpy().tolist()


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then an ungated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context, factors="rope.factors")
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        h = linear(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp.up")
        x = net.Add(x, linear(net, _xielu(net, h, i), f"layers.{i}.mlp.down"))
    net.end(x, norm)


def _xielu(net: Decoder, x: Value, i: int) -> Value:
    """beta x plus a square of positive elements, or ``exp(x) - 1 - x`` of others, times positive factors."""
    alpha_n, alpha_p, beta, eps = (net.Slice(net.vector(f"xielu.{name}"), [i], [i + 1]) for name in XIELU)
    square = net.Mul(net.Softplus(alpha_p), net.Mul(x, x))
    grown = net.Mul(net.Add(beta, net.Softplus(alpha_n)), net.Sub(net.Elu(net.Min(x, eps)), x))
    y: Value = net.Add(net.Where(net.Greater(x, 0.0), square, grown), net.Mul(beta, x))
    return y


ARCHITECTURES = (
    Architecture(
        "apertus",
        "Apertus",
        ("apertus",),
        ("apertus",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        gguf_required=OWN_HEAD,
        defaults={"apertus": {"max_position_embeddings": 65536, "pad_token_id": 3}},
    ),
)
