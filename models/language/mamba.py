"""Mamba (Gu and Dao 2023, arXiv:2312.00752) and Falcon Mamba: selective state-space layers, no attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight, value_at
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, checked, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mamba import INNER, MIXER, NEGATED, PREFIXES, STATE_SPACE, convolved, named, weights
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..layers.norm import norm
from ..layers.recurrence import scan, token_mask
from ..schema.hyperparameters import matrix


@dataclass(frozen=True)
class Rank:
    """Hyper-parameter: rank of the time-step projection; "auto" means a sixteenth of the hidden size."""

    name: str = "rank"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "time_step_rank" if names == HF else "ssm.time_step_rank"
        said = source.get(key, value_at(source, "ssm_cfg.dt_rank")) if names == HF else source[key]
        rank: int = -(-config.hidden // 16) if said is None or said == "auto" else checked(key, said, COUNT)
        return rank

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"time_step_rank" if names == HF else "ssm.time_step_rank": config.rank}


KEYS = (
    *STATE_SPACE, INNER, Key("state", ("state_size", "ssm_cfg.d_state"), "ssm.state_size", 16, COUNT), Rank(),
    Key("steps", (), (), lambda config: config.rank + 2 * config.state),
    Key("normed", (), "ssm.dt_b_c_rms", False, flag),
)  # fmt: skip
FALCON_KEYS = (
    *KEYS[:-1], Key("normed", (), "ssm.dt_b_c_rms", True, flag),
    Key("inner_eps", "mixer_rms_eps", (), lambda config: 1e-6 if config.names == HF else config.eps, NOT_NEGATIVE),
)  # fmt: skip

WEIGHTS = weights(
    *matrix("layers.{i}.x", f"{MIXER}x_proj", "blk.{i}.ssm_x", shape=("steps", "inner")),
    *matrix("layers.{i}.dt", f"{MIXER}dt_proj", "blk.{i}.ssm_dt", shape=("inner", "rank")),
    Weight("layers.{i}.decay", Stored((f"{MIXER}A_log",), NEGATED), "blk.{i}.ssm_a", shape=("inner", "state")),
    Weight("layers.{i}.skip", f"{MIXER}D", "blk.{i}.ssm_d", shape=("inner",)),
    channels="inner",
    entries="2*inner",
)


def build(net: Decoder) -> None:
    """Layers of one mixer each."""
    x = net.begin()
    for i in range(net.config.layers):
        x = net.Add(x, mixer(net, norm(net, x, f"layers.{i}.norm"), i))
    net.end(x, norm)


def mixer(net: Decoder, x: Value, i: int) -> Value:
    """Mixer: short convolution, selective scan of the states, output gate."""
    config, name = net.config, f"layers.{i}"
    x, gate = net.split(linear(net, net.Mul(x, token_mask(net)), f"{name}.in"), [config.inner, config.inner])
    x = convolved(net, x, i, config.inner)
    parts = net.split(linear(net, x, f"{name}.x"), [config.rank, config.state, config.state])
    if config.normed:
        ones = (np.ones(size, np.float32) for size in (config.rank, config.state, config.state))
        parts = [
            net.RMSNormalization(part, one, epsilon=config.inner_eps) for part, one in zip(parts, ones, strict=True)
        ]
    width, write, read = parts
    width = net.Softplus(linear(net, width, f"{name}.dt"))
    past = net.past(f"state.{i}", (config.inner, config.state))
    decay = net.vector(f"{name}.decay")
    state, y = scan(
        net,
        [past],
        [width, net.Mul(width, x), write, read],
        lambda step, states, entries: _step(step, states, entries, decay),
    )
    net.present(f"state.{i}", state)
    y = net.Add(y, net.Mul(x, net.vector(f"{name}.skip")))
    return linear(net, net.Mul(y, ACTIVATIONS["silu"](net, gate)), f"{name}.out")


def _step(net: Net, states: list[Value], entries: list[Value], decay: Value) -> tuple[list[Value], list[Value]]:
    """The state [batch, inner, state] after one token, and the output [batch, inner]."""
    width, x, write, read = entries
    kept = net.Mul(net.Exp(net.Mul(net.Unsqueeze(width, [2]), decay)), states[0])
    state = net.Add(kept, net.Mul(net.Unsqueeze(x, [2]), net.Unsqueeze(write, [1])))
    return [state], [net.Squeeze(net.MatMul(state, net.Unsqueeze(read, [2])), [2])]


ARCHITECTURES = (
    Architecture(
        "mamba",
        "Mamba",
        ("mamba",),
        ("mamba",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=PREFIXES,
        implied=lambda source, graph: named(source, "Mamba1", "mamba"),
        accepts=lambda source: not source.get("mamba.ssm.dt_b_c_rms"),
    ),
    Architecture(
        "falcon_mamba",
        "Falcon Mamba",
        ("falcon_mamba",),
        ("mamba",),
        FALCON_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=PREFIXES,
    ),
)
