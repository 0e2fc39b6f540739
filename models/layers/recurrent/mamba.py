"""Mixers of Mamba 1 (Gu and Dao 2023, arXiv:2312.00752) and 2 (Dao and Gu 2024, arXiv:2405.21060): hyper-parameters,
weight bindings and graphs, for pure and for hybrid models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, Config, Key, Stored, Weight, value_at
from ....runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, SIZE, Listed, checked
from ....runtime.ir.graph import Value
from ...schema.hyperparameters import LAYERS, TaskName, Vocabulary, act, matrix
from ...schema.weight_layout import Changed, Reshaped
from ..decoder import Decoder
from ..linear import linear
from ..mlp import ACTIVATIONS
from ..net import Net
from .recurrence import Scanned, scan, short_conv, token_mask


@dataclass(frozen=True)
class PaddedVocabulary:
    """Hyper-parameter: vocabulary size; the first published configurations omit the padding of the embedding."""

    name: str = "vocab"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        count = Vocabulary().read(names, source, config)
        key = "pad_vocab_size_multiple"
        multiple = checked(key, source.get(key, 8), SIZE) if names == HF and "d_model" in source else 1
        return None if count is None else -(-count // max(multiple, 1)) * max(multiple, 1)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return Vocabulary().write(names, config)


@dataclass(frozen=True)
class Rank:
    """Hyper-parameter: rank of the time-step projection; "auto" means a sixteenth of the hidden size."""

    key: str = "time_step_rank"
    name: str = "rank"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = self.key if names == HF else "ssm.time_step_rank"
        said = source.get(key, value_at(source, "ssm_cfg.dt_rank")) if names == HF else source[key]
        rank: int = -(-config.hidden // 16) if said is None or said == "auto" else checked(key, said, COUNT)
        return rank

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key if names == HF else "ssm.time_step_rank": config.rank}


LIMIT = 2**20
"""Context length that GGUF files give models without a limit."""
STATE_SPACE = (
    TaskName(),
    PaddedVocabulary(),
    Key("context", (), "context_length", LIMIT, COUNT),
    Key("hidden", ("hidden_size", "d_model"), "embedding_length", kind=COUNT),
    Key("layers", ("num_hidden_layers", "n_layer"), "block_count", kind=LAYERS),
    Key("heads", (), "attention.head_count", 0),
    Key("feed_forward", (), "feed_forward_length", 0),
    Key("taps", ("conv_kernel", "ssm_cfg.d_conv"), "ssm.conv_kernel", 4, COUNT),
    Key("expand", ("expand", "ssm_cfg.expand"), (), 2, COUNT),
    Key("eps", ("layer_norm_epsilon", "rms_norm_eps"), "attention.layer_norm_rms_epsilon", 1e-5, NOT_NEGATIVE),
    act("silu"),
)

NEGATED = Changed(lambda x: -np.exp(x), lambda x: np.log(-x))
"""Decay rates A; Hugging Face checkpoints store log(-A)."""
PREFIXES = ("model.", "backbone.")
INNER = Key("inner", "intermediate_size", "ssm.inner_size", lambda config: config.expand * config.hidden, COUNT)
MIXER = "backbone.layers.{i}.mixer."
EMBED = matrix("embed", ("backbone.embeddings", "backbone.embedding"), "token_embd", shape=("vocab", "hidden"))
MIXER_NORM = matrix("layers.{i}.norm", "backbone.layers.{i}.norm", "blk.{i}.attn_norm", shape=("hidden",))
END = (
    *matrix("norm", "backbone.norm_f", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
)
Present = Callable[[Config, int], bool] | None
"""Whether layer `i` has a mixer; None for every layer."""


def quotient(total_key: str, count: str) -> Callable[[Config], int]:
    """Callable: config[`total_key`] / config[`count`]. ValueError unless it divides evenly."""

    def share(config: Config) -> int:
        total, number = getattr(config, total_key), getattr(config, count)
        if total % number:
            raise ValueError(f"{total:,} is not divisible by {number:,}")
        return int(total // number)

    return share


def step_limit(value: Any) -> float:
    """Lower or upper limit of the time step; transformers 5 writes infinity as an object."""
    said = value.get("__float__") if isinstance(value, dict) else value
    return math.inf if said in (math.inf, "Infinity", "inf") else NOT_NEGATIVE(said)


STEP_LIMITS = Listed(step_limit, 2, 2)
GROUPS = (
    Key("group_heads", (), (), quotient("mixers", "groups")),
    Key("group_width", (), (), quotient("inner", "groups")),
    Key("channels", (), (), lambda config: config.inner + 2 * config.groups * config.state),
    Key("entries", (), (), lambda config: config.inner + config.channels + config.mixers),
)
"""Sizes of a Mamba 2 mixer that follow from the others."""


def projections(hf: str, when: Present, channels: str, entries: str) -> tuple[Weight, ...]:
    """Weight bindings of the input and output projections and the convolution.

    Args:
        hf: prefix of Hugging Face's names.
        channels: hyper-parameter with the number of convolution channels.
        entries: shape expression of the rows of the input projection.
    """
    flat = Reshaped((channels, 1, "taps"), (channels, "taps"))
    return (
        *matrix("layers.{i}.in", f"{hf}in_proj", "blk.{i}.ssm_in", shape=(entries, "hidden"), when=when),
        Weight(
            "layers.{i}.conv.weight",
            f"{hf}conv1d.weight",
            Stored(("blk.{i}.ssm_conv1d.weight",), flat),
            shape=(channels, 1, "taps"),
            when=when,
        ),
        Weight(
            "layers.{i}.conv.bias",
            f"{hf}conv1d.bias",
            "blk.{i}.ssm_conv1d.bias",
            shape=(channels,),
            optional=True,
            when=when,
        ),
        *matrix("layers.{i}.out", f"{hf}out_proj", "blk.{i}.ssm_out", shape=("hidden", "inner"), when=when),
    )  # fmt: skip


def selective_weights(hf: str, when: Present = None) -> tuple[Weight, ...]:
    """Weight bindings of a `selective_mixer`."""
    return (
        *projections(hf, when, "inner", "2*inner"),
        *matrix("layers.{i}.x", f"{hf}x_proj", "blk.{i}.ssm_x", shape=("steps", "inner"), when=when),
        *matrix("layers.{i}.dt", f"{hf}dt_proj", "blk.{i}.ssm_dt", shape=("inner", "rank"), when=when),
        Weight("layers.{i}.decay", Stored((f"{hf}A_log",), NEGATED), "blk.{i}.ssm_a", shape=("inner", "state"),
               when=when),
        Weight("layers.{i}.skip", f"{hf}D", "blk.{i}.ssm_d", shape=("inner",), when=when),
    )  # fmt: skip


def head_weights(hf: str, when: Present = None, optional: bool = False) -> tuple[Weight, ...]:
    """Weight bindings of a `head_mixer`; `optional` is whether files may lack the norm."""
    each = Reshaped(("mixers",), ("mixers", 1))
    return (
        *projections(hf, when, "channels", "entries"),
        Weight("layers.{i}.dt.bias", f"{hf}dt_bias", "blk.{i}.ssm_dt.bias", shape=("mixers",), when=when),
        Weight("layers.{i}.decay", Stored((f"{hf}A_log",), NEGATED), Stored(("blk.{i}.ssm_a",), each),
               shape=("mixers",), when=when),
        Weight("layers.{i}.skip", f"{hf}D", Stored(("blk.{i}.ssm_d",), each), shape=("mixers",), when=when),
        *matrix("layers.{i}.inner_norm", f"{hf}norm", "blk.{i}.ssm_norm", shape=("mixers*mixer_dim",),
                gguf_layout=Reshaped(("inner",), ("groups", "group_width")), optional=optional, when=when),
    )  # fmt: skip


def named(source: Mapping[str, Any], layer: str, model_type: str) -> tuple[str, Mapping[str, Any]] | None:
    """Model type of the first published configurations, which have no ``model_type`` but ``ssm_cfg``, which names the
    kind of layer."""
    found = source.get("ssm_cfg")
    return (
        (HF, {**source, "model_type": model_type})
        if isinstance(found, dict) and found.get("layer", "Mamba1") == layer
        else None
    )


def convolved(net: Decoder, x: Value, i: int, channels: int) -> Value:
    """Short convolution and activation of layer `i` on `x` [batch, length, channels]; zero at padding."""
    config, name = net.config, f"layers.{i}.conv"
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y = short_conv(net, x, net.vector(f"{name}.weight"), bias, f"conv.{i}", channels, config.taps)
    masked: Value = net.Mul(ACTIVATIONS[config.act](net, y), token_mask(net))
    return masked


def selective_mixer(net: Decoder, x: Value, i: int) -> Value:
    """Mixer of Mamba 1: short convolution, selective scan of the states, output gate.

    Time step, B and C are normalized where the model has ``layers.I.{dt,b,c}_norm``, or without weights if
    ``config.normed``.
    """
    config, name = net.config, f"layers.{i}"
    x, gate = net.split(linear(net, net.Mul(x, token_mask(net)), f"{name}.in"), [config.inner, config.inner])
    x = convolved(net, x, i, config.inner)
    counts = (config.rank, config.state, config.state)
    parts = net.split(linear(net, x, f"{name}.x"), counts)
    if config.normed:
        parts = [
            net.RMSNormalization(part, _scale(net, f"{name}.{kind}_norm", size), epsilon=config.inner_eps)
            for part, kind, size in zip(parts, ("dt", "b", "c"), counts, strict=True)
        ]
    width, write, read = parts
    width = net.Softplus(linear(net, width, f"{name}.dt"))
    past = net.past(f"state.{i}", (config.inner, config.state))
    decay = net.vector(f"{name}.decay")
    state, y = scan(
        net,
        [past],
        [width, net.Mul(width, x), write, read],
        lambda step, states, entries: _selective_step(step, states, entries, decay),
    )
    net.present(f"state.{i}", state)
    y = net.Add(y, net.Mul(x, net.vector(f"{name}.skip")))
    return linear(net, net.Mul(y, ACTIVATIONS["silu"](net, gate)), f"{name}.out")


def _scale(net: Net, name: str, size: int) -> Value | np.ndarray:
    return net.vector(f"{name}.weight") if net.has(f"{name}.weight") else np.ones(size, np.float32)


def _selective_step(net: Net, states: list[Value], entries: list[Value], decay: Value) -> Scanned:
    """The state [batch, inner, state] after one token, and the output [batch, inner]."""
    width, x, write, read = entries
    kept = net.Mul(net.Exp(net.Mul(net.Unsqueeze(width, [2]), decay)), states[0])
    state = net.Add(kept, net.Mul(net.Unsqueeze(x, [2]), net.Unsqueeze(write, [1])))
    return [state], [net.Squeeze(net.MatMul(state, net.Unsqueeze(read, [2])), [2])]


def head_mixer(net: Decoder, x: Value, i: int, *, factors: np.ndarray | None = None, gate_first: bool = True) -> Value:
    """Mixer of Mamba 2: short convolution, scan of the head states, output gate and grouped norm, if the model has it.

    Args:
        gate_first: whether the gate is applied before the norm.
    """
    config, name = net.config, f"layers.{i}"
    groups, heads, size = config.groups, config.group_heads, config.mixer_dim
    gate, x, width = net.split(
        linear(net, net.Mul(x, token_mask(net)), f"{name}.in"), [config.inner, config.channels, config.mixers]
    )
    x, write, read = net.split(
        convolved(net, x, i, config.channels), [config.inner, groups * config.state, groups * config.state]
    )
    width = net.Softplus(net.Add(width, net.vector(f"{name}.dt.bias")))
    low, high = config.widths
    if low > 0 or high < math.inf:
        width = net.Clip(width, low, high)
    kept = net.Reshape(net.Exp(net.Mul(width, net.vector(f"{name}.decay"))), [0, 0, groups, heads, 1, 1])
    x = net.Reshape(x, [0, 0, config.mixers, size])
    wide = net.Reshape(net.Mul(x, net.Unsqueeze(width, [3])), [0, 0, groups, heads, size, 1])
    past = net.past(f"state.{i}", (groups, heads, size, config.state))
    steps = [
        kept,
        wide,
        net.Reshape(write, [0, 0, groups, 1, 1, config.state]),
        net.Reshape(read, [0, 0, groups, 1, config.state, 1]),
    ]
    state, y = scan(net, [past], steps, _head_step)
    net.present(f"state.{i}", state)
    y = net.Add(net.Reshape(y, [0, 0, config.mixers, size]), net.Mul(x, net.Unsqueeze(net.vector(f"{name}.skip"), [1])))
    y, gate = net.merge_heads(y), ACTIVATIONS["silu"](net, gate)
    y = net.Mul(y, gate) if gate_first else y
    if net.has(f"{name}.inner_norm.weight"):
        ones = np.ones(config.group_width, np.float32)
        y = net.RMSNormalization(net.split_heads(y, groups, config.group_width), ones, epsilon=config.eps)
        y = net.Mul(net.merge_heads(y), net.vector(f"{name}.inner_norm.weight"))
    return linear(net, y if gate_first else net.Mul(y, gate), f"{name}.out")


def _head_step(net: Net, states: list[Value], entries: list[Value]) -> Scanned:
    """The state [batch, groups, heads, size, state] after one token, and the output [batch, groups, heads, size, 1]."""
    kept, x, write, read = entries
    state = net.Add(net.Mul(kept, states[0]), net.Mul(x, write))
    return [state], [net.MatMul(state, read)]
