"""RecurrentGemma (Griffin, De et al. 2024, arXiv:2402.19427): gated linear recurrences (RG-LRU), and local attention in
every third layer."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, EVEN, NOT_NEGATIVE, Choice, Listed
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS, gated
from ..layers.net import Net
from ..layers.norm import norm
from ..layers.recurrent.recurrence import scan, short_conv, token_mask
from ..layers.rope import PLAIN, Rotary
from ..schema.hyperparameters import DECODER, KV_HEADS, OWN_HEAD_DIM, RMS_EPS, THETA, act, matrix, partial
from ..schema.weight_layout import Plus

DECAY = -8.0
"""The constant c of RG-LRU: decay = exp(c * softplus(a) * gate)."""


KEYS = (
    *DECODER, KV_HEADS, RMS_EPS, THETA, act("gelu_tanh", "hidden_activation"), partial(0.5),
    OWN_HEAD_DIM,
    Key("rotary", (), (), lambda config: int(config.rotary_fraction * config.head_dim), EVEN, at_most=("head_dim",)),
    Key("doubled", "intermediate_size", kind=EVEN), Key("intermediate", (), (), lambda config: config.doubled // 2),
    Key("width", "lru_width", (), lambda config: config.hidden, COUNT),
    Key("block", (), (), lambda config: config.width // config.heads, COUNT),
    Key("taps", "conv1d_width", (), 4, COUNT),
    Key("window", ("attention_window_size", "sliding_window"), (), 2048, COUNT),
    Key("blocks", "block_types", (), ["recurrent", "recurrent", "attention"],
        Listed(Choice(("recurrent", "attention")), 1)),
    Key("logit_cap", "logits_soft_cap", (), 30.0, NOT_NEGATIVE, null=0.0),
)  # fmt: skip


def recurrent(config: Config, i: int) -> bool:
    """Whether layer `i` is a recurrence."""
    return bool(config.blocks[i % len(config.blocks)] == "recurrent")


def attends(config: Config, i: int) -> bool:
    """Whether layer `i` is an attention layer."""
    return not recurrent(config, i)


LAYER = "model.layers.{i}."
GATE = ("heads", "block", "block")
WEIGHTS = (
    *matrix("embed", "model.embed_tokens", None, shape=("vocab", "hidden")),
    *matrix("layers.{i}.norm", f"{LAYER}temporal_pre_norm", None, hf_layout=Plus(1), shape=("hidden",)),
    *matrix("layers.{i}.y", f"{LAYER}temporal_block.linear_y", None, shape=("width", "hidden"), when=recurrent),
    *matrix("layers.{i}.x", f"{LAYER}temporal_block.linear_x", None, shape=("width", "hidden"), when=recurrent),
    *matrix("layers.{i}.out", f"{LAYER}temporal_block.linear_out", None, shape=("hidden", "width"), when=recurrent),
    *matrix("layers.{i}.conv", f"{LAYER}temporal_block.conv_1d", None, shape=("width", 1, "taps"), when=recurrent),
    Weight("layers.{i}.input.weight", f"{LAYER}temporal_block.rg_lru.input_gate_weight", shape=GATE, when=recurrent),
    Weight("layers.{i}.input.bias", f"{LAYER}temporal_block.rg_lru.input_gate_bias", shape=GATE[:2], when=recurrent),
    Weight(
        "layers.{i}.forget.weight", f"{LAYER}temporal_block.rg_lru.recurrent_gate_weight", shape=GATE, when=recurrent
    ),
    Weight(
        "layers.{i}.forget.bias", f"{LAYER}temporal_block.rg_lru.recurrent_gate_bias", shape=GATE[:2], when=recurrent
    ),
    Weight("layers.{i}.decay", f"{LAYER}temporal_block.rg_lru.recurrent_param", shape=("width",), when=recurrent),
    *matrix(
        "layers.{i}.attn.q", f"{LAYER}temporal_block.q_proj", None, shape=("heads*head_dim", "hidden"), when=attends
    ),
    *matrix(
        "layers.{i}.attn.k", f"{LAYER}temporal_block.k_proj", None, shape=("kv_heads*head_dim", "hidden"), when=attends
    ),
    *matrix(
        "layers.{i}.attn.v", f"{LAYER}temporal_block.v_proj", None, shape=("kv_heads*head_dim", "hidden"), when=attends
    ),
    *matrix(
        "layers.{i}.attn.o", f"{LAYER}temporal_block.o_proj", None, shape=("hidden", "heads*head_dim"), when=attends
    ),
    *matrix("layers.{i}.mlp_norm", f"{LAYER}channel_pre_norm", None, hf_layout=Plus(1), shape=("hidden",)),
    *matrix("layers.{i}.mlp.gate", f"{LAYER}mlp_block.gate_proj", None, shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.up", f"{LAYER}mlp_block.up_proj", None, shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", f"{LAYER}mlp_block.down_proj", None, shape=("hidden", "intermediate")),
    *matrix("norm", "model.final_norm", None, hf_layout=Plus(1), shape=("hidden",)),
    *matrix("head", "lm_head", None, optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers: a recurrence or attention, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, PLAIN, config.context)
    x = net.begin(scale=_in_bf16(math.sqrt(config.hidden)))
    for i in range(config.layers):
        y = norm(net, x, f"layers.{i}.norm")
        x = net.Add(
            x,
            recurrence(net, y, i) if recurrent(config, i) else self_attention(net, y, i, rotary, window=config.window),
        )
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    cap = config.logit_cap
    net.end(x, norm, change=lambda logits: net.Mul(net.Tanh(net.Div(logits, cap)), cap) if cap else logits)


def _in_bf16(value: float) -> float:
    """The value rounded to bf16, as the published models' embedding scale is."""
    bits = int(np.float32(value).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32))


def recurrence(net: Decoder, x: Value, i: int) -> Value:
    """Recurrent block: short convolution and gated linear recurrence, times a GELU branch."""
    config, name = net.config, f"layers.{i}"
    branch = ACTIVATIONS[config.act](net, linear(net, x, f"{name}.y"))
    x = net.Mul(linear(net, x, f"{name}.x"), token_mask(net))
    x = short_conv(
        net,
        x,
        net.vector(f"{name}.conv.weight"),
        net.vector(f"{name}.conv.bias"),
        f"conv.{i}",
        config.width,
        config.taps,
    )
    blocks = net.Transpose(net.split_heads(x, config.heads, config.block), perm=[0, 2, 1, 3])
    logarithm = net.Mul(net.Mul(_gate(net, blocks, f"{name}.forget"), net.Softplus(net.vector(f"{name}.decay"))), DECAY)
    first = net.once("first", lambda: net.Unsqueeze(net.Equal(net.positions, net.Constant(value_int=0)), [2]))
    kept = net.Where(first, 0.0, net.Exp(logarithm))
    scale = net.Where(first, 1.0, net.Sqrt(net.Sub(1.0, net.Exp(net.Mul(logarithm, 2.0)))))
    entered = net.Mul(net.Mul(x, _gate(net, blocks, f"{name}.input")), scale)
    state, y = scan(net, [net.past(f"state.{i}", (config.width,))], [kept, entered], _step)
    net.present(f"state.{i}", state)
    return linear(net, net.Mul(y, branch), f"{name}.out")


def _gate(net: Decoder, blocks: Value, name: str) -> Value:
    """Block-diagonal gate [batch, length, width]."""
    y = net.Transpose(net.MatMul(blocks, net.vector(f"{name}.weight")), perm=[0, 2, 1, 3])
    gate: Value = net.Sigmoid(net.merge_heads(net.Add(y, net.vector(f"{name}.bias"))))
    return gate


def _step(net: Net, states: list[Value], entries: list[Value]) -> tuple[list[Value], list[Value]]:
    kept, entered = entries
    state = net.Add(net.Mul(kept, states[0]), entered)
    return [state], [state]


ARCHITECTURES = (
    Architecture(
        "recurrent_gemma",
        "RecurrentGemma (Griffin)",
        ("recurrent_gemma",),
        (),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        defaults={"recurrent_gemma": {"pad_token_id": 0}},
    ),
)
