"""Mamba layers shared by versions 1 and 2: hyper-parameters, weight layouts and the convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, SIZE, checked
from ...runtime.ir.graph import Value
from ..schema.hyperparameters import LAYERS, TaskName, Vocabulary, act, matrix
from ..schema.weight_layout import Changed, Reshaped
from .decoder import Decoder
from .mlp import ACTIVATIONS
from .recurrence import short_conv, token_mask


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


def weights(*mixer: Weight, channels: str, entries: str) -> tuple[Weight, ...]:
    """All weight bindings of a Mamba; `mixer` are those of one version.

    Args:
        channels: hyper-parameter with the number of convolution channels.
        entries: shape expression of the rows of the input projection.
    """
    flat = Reshaped((channels, 1, "taps"), (channels, "taps"))
    return (
        *matrix("embed", ("backbone.embeddings", "backbone.embedding"), "token_embd", shape=("vocab", "hidden")),
        *matrix("layers.{i}.norm", "backbone.layers.{i}.norm", "blk.{i}.attn_norm", shape=("hidden",)),
        *matrix("layers.{i}.in", f"{MIXER}in_proj", "blk.{i}.ssm_in", shape=(entries, "hidden")),
        Weight(
            "layers.{i}.conv.weight",
            f"{MIXER}conv1d.weight",
            Stored(("blk.{i}.ssm_conv1d.weight",), flat),
            shape=(channels, 1, "taps"),
        ),
        Weight(
            "layers.{i}.conv.bias", f"{MIXER}conv1d.bias", "blk.{i}.ssm_conv1d.bias", shape=(channels,), optional=True
        ),
        *mixer,
        *matrix("layers.{i}.out", f"{MIXER}out_proj", "blk.{i}.ssm_out", shape=("hidden", "inner")),
        *matrix("norm", "backbone.norm_f", "output_norm", shape=("hidden",)),
        *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
    )


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
