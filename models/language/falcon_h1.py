"""Falcon-H1 (TII 2025, arXiv:2507.22448): attention and a Mamba 2 mixer side by side in each layer.

The published models multiply activations by constants (muP). The graph has them in the weights, as GGUF files do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import (
    HF,
    OWN_HEAD,
    SAME,
    Architecture,
    Config,
    Key,
    Stored,
    Weight,
    Whole,
    lacks_weights,
)
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, Listed, flag
from ...runtime.tensor.scaled import scaled, scaled_rows
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.recurrent.mamba import GROUPS, STEP_LIMITS, head_mixer, head_weights, quotient
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM
from ..schema.gguf.deviations import RECURRENT_BIAS, Unread
from ..schema.gguf.required import CONVOLUTION_BIAS
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, RMS_EPS_5, THETA, TOKENS, Fixed, act, matrix


def _multiplier(name: str, key: str) -> Key:
    return Key(name, key, (), 1.0, POSITIVE)


def _multipliers(name: str, key: str, count: int) -> Key:
    return Key(name, key, (), [1.0] * count, Listed(POSITIVE, count, count))


@dataclass(frozen=True)
class NormOrder(Fixed):
    """Hyper-parameter, read after `normed`: whether norms come before the gate. GGUF files of models without norms have
    either order."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return super().write(names, config) if names == HF or config.normed else {}


KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, RMS_EPS_5, THETA, Scaling(), act("silu"), TOKENS,
    Key("taps", "mamba_d_conv", "ssm.conv_kernel", 4, COUNT),
    Key("state", "mamba_d_state", "ssm.state_size", 256, COUNT),
    Key("groups", "mamba_n_groups", "ssm.group_count", 1, COUNT),
    Key("mixers", "mamba_n_heads", "ssm.time_step_rank", 128, COUNT),
    Key("expand", "mamba_expand", (), 2, COUNT),
    Key("inner", "mamba_d_ssm", "ssm.inner_size", lambda config: config.expand * config.hidden, COUNT),
    Key("mixer_dim", (), (), quotient("inner", "mixers"), COUNT), *GROUPS,
    Fixed("widths", "time_step_limit", [0.0, float("inf")], STEP_LIMITS),
    Key("normed", "mamba_rms_norm", (), None, flag), NormOrder("norm_first", "mamba_norm_before_gate", False, flag),
    _multiplier("embeddings", "embedding_multiplier"), _multiplier("logits", "lm_head_multiplier"),
    _multiplier("attention_in", "attention_in_multiplier"), _multiplier("attention_out", "attention_out_multiplier"),
    _multiplier("keys", "key_multiplier"), _multiplier("mixer_in", "ssm_in_multiplier"),
    _multiplier("mixer_out", "ssm_out_multiplier"), _multipliers("network", "mlp_multipliers", 2),
    _multipliers("parts", "ssm_multipliers", 5),
)  # fmt: skip


@dataclass(frozen=True)
class Multiplied(Whole):
    """A weight that Hugging Face stores without a multiplier of the activations.

    Attributes:
        factor: returns the multiplier, or one for each row.
    """

    factor: Callable[[Config], float | np.ndarray]

    @property
    def computed(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return _times(parts[0], self.factor(config))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [_times(whole, 1 / self.factor(config))]


def _times(tensor: StoredTensor, factor: float | np.ndarray) -> StoredTensor:
    """The product in f32; the tensor itself for a factor of 1."""
    if np.all(factor == 1.0):
        return tensor
    plain = (tensor if tensor.qtype is None else tensor.dequantize()).cast("f32")
    return scaled(plain, factor) if isinstance(factor, float) else scaled_rows(plain, factor)


def _rows(config: Config) -> np.ndarray:
    """Multipliers of the rows of a mixer's input projection, f32 [entries]: gate, x, B, C, time step."""
    group = config.groups * config.state
    counts = (config.inner, config.inner, group, group, config.mixers)
    return np.repeat(np.asarray(config.parts, np.float32), counts)


def _multiplied(
    name: str,
    hf: str,
    gguf: str,
    shape: tuple[str, ...],
    factor: Callable[[Config], float | np.ndarray],
    *,
    bias: Callable[[Config], float | np.ndarray] | None = None,
) -> tuple[Weight, Weight]:
    """Bindings of a matrix times `factor` and its bias times `bias`, by default not multiplied."""
    rows = (("weight", Multiplied(factor), shape), ("bias", Multiplied(bias) if bias else SAME, shape[:1]))
    weight, added = (
        Weight(
            f"{name}.{kind}",
            Stored((f"{hf}.{kind}",), layout),
            f"{gguf}.{kind}",
            shape=size,
            optional=kind == "bias" or name == "head",
        )
        for kind, layout, size in rows
    )
    return weight, added


LAYER, ATTENTION, NETWORK, MIXER = (
    f"model.layers.{{i}}.{part}" for part in ("", "self_attn.", "feed_forward.", "mamba.")
)
QUERIES, KEYS_, HIDDEN = ("heads*head_dim", "hidden"), ("kv_heads*head_dim", "hidden"), ("intermediate", "hidden")
IN, OUT = "layers.{i}.in", "layers.{i}.out"
WEIGHTS = (
    *_multiplied("embed", "model.embed_tokens", "token_embd", ("vocab", "hidden"), lambda config: config.embeddings),
    *ATTN_NORM,
    *(row for row in head_weights(MIXER, optional=True) if not row.name.startswith((f"{IN}.", f"{OUT}."))),
    *_multiplied(IN, f"{MIXER}in_proj", "blk.{i}.ssm_in", ("entries", "hidden"),
                 lambda config: _rows(config) * np.float32(config.mixer_in), bias=_rows),
    *_multiplied(OUT, f"{MIXER}out_proj", "blk.{i}.ssm_out", ("hidden", "inner"), lambda config: config.mixer_out,
                 bias=lambda config: config.mixer_out),
    *_multiplied("layers.{i}.attn.q", f"{ATTENTION}q_proj", "blk.{i}.attn_q", QUERIES,
                 lambda config: config.attention_in),
    *_multiplied("layers.{i}.attn.k", f"{ATTENTION}k_proj", "blk.{i}.attn_k", KEYS_,
                 lambda config: config.attention_in * config.keys, bias=lambda config: config.keys),
    *_multiplied("layers.{i}.attn.v", f"{ATTENTION}v_proj", "blk.{i}.attn_v", KEYS_,
                 lambda config: config.attention_in),
    *_multiplied("layers.{i}.attn.o", f"{ATTENTION}o_proj", "blk.{i}.attn_output", QUERIES[::-1],
                 lambda config: config.attention_out, bias=lambda config: config.attention_out),
    Weight("layers.{i}.mlp_norm.weight", f"{LAYER}pre_ff_layernorm.weight", "blk.{i}.ffn_norm", shape=("hidden",)),
    *_multiplied("layers.{i}.mlp.gate", f"{NETWORK}gate_proj", "blk.{i}.ffn_gate", HIDDEN,
                 lambda config: config.network[0], bias=lambda config: config.network[0]),
    *matrix("layers.{i}.mlp.up", f"{NETWORK}up_proj", "blk.{i}.ffn_up", shape=HIDDEN),
    *_multiplied("layers.{i}.mlp.down", f"{NETWORK}down_proj", "blk.{i}.ffn_down", HIDDEN[::-1],
                 lambda config: config.network[1], bias=lambda config: config.network[1]),
    *matrix("norm", "model.final_layernorm", "output_norm", shape=("hidden",)),
    *_multiplied("head", "lm_head", "output", ("vocab", "hidden"), lambda config: config.logits,
                 bias=lambda config: config.logits),
)  # fmt: skip


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Find out whether mixers have a norm; give a tied head, whose multiplier is another, its own weight."""
    normed = "layers.0.inner_norm.weight" in weights
    if any((f"layers.{i}.inner_norm.weight" in weights) != normed for i in range(config.layers)) or (
        config.normed is not None and config.normed != normed
    ):
        why = "the mixers' norms of a falcon_h1 model do not match its configuration"
        raise lacks_weights(config.path, why)
    config.values["normed"] = normed
    if "head.weight" not in weights and config.values[OWN_HEAD] is None and config.logits != config.embeddings:
        weights["head.weight"] = _times(weights["embed.weight"], config.logits / config.embeddings)


def build(net: Decoder) -> None:
    """Pre-norm layers: a mixer and attention on the same input, then a gated network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        y = norm(net, x, f"layers.{i}.attn_norm")
        mixed = head_mixer(net, y, i, gate_first=not config.norm_first)
        x = net.Add(x, net.Add(mixed, self_attention(net, y, i, rotary)))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


def _output_bias(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models with biases of attention."""
    return "ignores attn_output.bias" if any(name.endswith("attn_output.bias") for name in names) else None


ARCHITECTURES = (
    Architecture(
        "falcon_h1",
        "Falcon-H1",
        ("falcon_h1",),
        ("falcon-h1",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        gguf_required=CONVOLUTION_BIAS,
        deviations=(Unread(RECURRENT_BIAS), _output_bias),
        defaults={
            "falcon_h1": {
                "num_key_value_heads": 8,
                "pad_token_id": 0,
                "max_position_embeddings": 8192,
                "mamba_d_ssm": 1024,
                "mamba_norm_before_gate": True,
            }
        },
    ),
)
