"""Mamba 2 (Dao and Gu 2024, arXiv:2405.21060): state-space heads with a scalar decay; groups of heads share B and C."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Listed
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mamba import MIXER, NEGATED, PREFIXES, STATE_SPACE, convolved, named, weights
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..layers.norm import norm
from ..layers.recurrence import scan, token_mask
from ..schema.hyperparameters import matrix
from ..schema.weight_layout import Reshaped


def step_limit(value: Any) -> float:
    """Lower or upper limit of the time step; transformers 5 writes infinity as an object."""
    said = value.get("__float__") if isinstance(value, dict) else value
    return math.inf if said in (math.inf, "Infinity", "inf") else NOT_NEGATIVE(said)


def quotient(total_key: str, count: str) -> Callable[[Config], int]:
    """Callable: config[`total_key`] / config[`count`]. ValueError unless it divides evenly."""

    def share(config: Config) -> int:
        total, number = getattr(config, total_key), getattr(config, count)
        if total % number:
            raise ValueError(f"{total:,} is not divisible by {number:,}")
        return int(total // number)

    return share


KEYS = (
    *STATE_SPACE,
    Key("inner", (), "ssm.inner_size", lambda config: config.expand * config.hidden, COUNT),
    Key("state", ("state_size", "ssm_cfg.d_state"), "ssm.state_size", 128, COUNT),
    Key("mixers", "num_heads", "ssm.time_step_rank", None, COUNT),
    Key(
        "head_dim",
        ("head_dim", "ssm_cfg.headdim"),
        (),
        lambda config: config.inner // config.mixers if config.mixers else 64,
        COUNT,
    ),
    Key("mixers", "num_heads", "ssm.time_step_rank", quotient("inner", "head_dim"), COUNT),
    Key("groups", ("n_groups", "ssm_cfg.ngroups"), "ssm.group_count", 1, COUNT),
    Key("group_heads", (), (), quotient("mixers", "groups")),
    Key("group_width", (), (), quotient("inner", "groups")),
    Key("channels", (), (), lambda config: config.inner + 2 * config.groups * config.state),
    Key("entries", (), (), lambda config: config.inner + config.channels + config.mixers),
    Key("widths", "time_step_limit", (), [0.0, math.inf], Listed(step_limit, 2, 2)),
)
EACH = Reshaped(("mixers",), ("mixers", 1))
WEIGHTS = weights(
    Weight("layers.{i}.dt.bias", f"{MIXER}dt_bias", "blk.{i}.ssm_dt.bias", shape=("mixers",)),
    Weight(
        "layers.{i}.decay", Stored((f"{MIXER}A_log",), NEGATED), Stored(("blk.{i}.ssm_a",), EACH), shape=("mixers",)
    ),
    Weight("layers.{i}.skip", f"{MIXER}D", Stored(("blk.{i}.ssm_d",), EACH), shape=("mixers",)),
    *matrix(
        "layers.{i}.inner_norm",
        f"{MIXER}norm",
        "blk.{i}.ssm_norm",
        shape=("mixers*head_dim",),
        gguf_layout=Reshaped(("inner",), ("groups", "group_width")),
    ),
    channels="channels",
    entries="entries",
)


def build(net: Decoder) -> None:
    """Layers of one mixer each."""
    x = net.begin()
    for i in range(net.config.layers):
        x = net.Add(x, mixer(net, norm(net, x, f"layers.{i}.norm"), i))
    net.end(x, norm)


def mixer(net: Decoder, x: Value, i: int) -> Value:
    """Mixer: short convolution, scan of the head states, output gate and grouped norm."""
    config, name = net.config, f"layers.{i}"
    groups, heads, size = config.groups, config.group_heads, config.head_dim
    gate, x, width = net.split(
        linear(net, net.Mul(x, token_mask(net)), f"{name}.in"), [config.inner, config.channels, config.mixers]
    )
    x, write, read = net.split(
        convolved(net, x, i, config.channels), [config.inner, groups * config.state, groups * config.state]
    )
    width = net.Softplus(net.Add(width, net.vector(f"{name}.dt.bias")))
    low, high = config.widths
    if low > 0 or high < float("inf"):
        width = net.Clip(width, low, high)
    kept = net.Reshape(net.Exp(net.Mul(width, net.vector(f"{name}.decay"))), [0, 0, groups, heads, 1, 1])
    x = net.Reshape(x, [0, 0, config.mixers, size])
    wide = net.Reshape(net.Mul(x, net.Unsqueeze(width, [3])), [0, 0, groups, heads, size, 1])
    past = net.past(f"state.{i}", (groups, heads, size, config.state))
    entries = [
        kept,
        wide,
        net.Reshape(write, [0, 0, groups, 1, 1, config.state]),
        net.Reshape(read, [0, 0, groups, 1, config.state, 1]),
    ]
    state, y = scan(net, [past], entries, _step)
    net.present(f"state.{i}", state)
    y = net.Add(net.Reshape(y, [0, 0, config.mixers, size]), net.Mul(x, net.Unsqueeze(net.vector(f"{name}.skip"), [1])))
    y = net.Mul(net.merge_heads(y), ACTIVATIONS["silu"](net, gate))
    y = net.RMSNormalization(
        net.split_heads(y, groups, config.group_width), np.ones(config.group_width, np.float32), epsilon=config.eps
    )
    return linear(net, net.Mul(net.merge_heads(y), net.vector(f"{name}.inner_norm.weight")), f"{name}.out")


def _step(net: Net, states: list[Value], entries: list[Value]) -> tuple[list[Value], list[Value]]:
    """The state [batch, groups, heads, size, state] after one token, and the output [batch, groups, heads, size, 1]."""
    kept, x, write, read = entries
    state = net.Add(net.Mul(kept, states[0]), net.Mul(x, write))
    return [state], [net.MatMul(state, read)]


ARCHITECTURES = (
    Architecture("mamba2", "Mamba 2", ("mamba2",), ("mamba2",), KEYS, WEIGHTS, decoder_tasks(build), prefixes=PREFIXES,
                 implied=lambda source, graph: named(source, "Mamba2", "mamba2")),
)  # fmt: skip
