"""What the first two Mambas share: rows of hyper-parameters, how files store their small weights, the mixer's way in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.arch import HF, Config, Key, Stored, Weight
from ...runtime.graph import Value
from ...runtime.parameter import COUNT, NOT_NEGATIVE, SIZE, checked
from ...runtime.record import dataclass
from .decoder import Decoder
from .layouts import Changed, Reshaped
from .mlp import ACTIVATIONS
from .recurrence import own_mask, short_conv
from .rows import LAYERS, Task, Vocabulary, act, matrix


@dataclass(frozen=True)
class PaddedVocabulary:
    """Row of the number of tokens; the first published configurations leave out what the embedding was padded by."""

    name: str = "vocab"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        count = Vocabulary().read(names, source, config)
        key = "pad_vocab_size_multiple"
        multiple = checked(key, source.get(key, 8), SIZE) if names == HF and "d_model" in source else 1
        return None if count is None else -(-count // max(multiple, 1)) * max(multiple, 1)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return Vocabulary().write(names, config)


LIMIT = 2**20
"""What GGUF files say of the context of models that have no limit."""
STATE_SPACE = (
    Task(),
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
"""Rates of decay, of which Hugging Face's files have the logarithm."""
PREFIXES = ("model.", "backbone.")
INNER = Key("inner", "intermediate_size", "ssm.inner_size", lambda config: config.expand * config.hidden, COUNT)
MIXER = "backbone.layers.{i}.mixer."


def weights(*mixer: Weight, channels: str, entries: str) -> tuple[Weight, ...]:
    """Rows of all weights, around those of the mixer that only one of the two has.

    Args:
        channels: the parameter that says those of the convolution.
        entries: the rows of the matrix into the mixer, as a shape has them.
    """
    flat = Reshaped((channels, 1, "taps"), (channels, "taps"))
    return (
        *matrix("embed", ("backbone.embeddings", "backbone.embedding"), "token_embd", shape=("vocab", "hidden")),
        *matrix("layers.{i}.norm", "backbone.layers.{i}.norm", "blk.{i}.attn_norm", shape=("hidden",)),
        *matrix("layers.{i}.in", f"{MIXER}in_proj", "blk.{i}.ssm_in", shape=(entries, "hidden")),
        Weight("layers.{i}.conv.weight", f"{MIXER}conv1d.weight", Stored(("blk.{i}.ssm_conv1d.weight",), flat), shape=(channels, 1, "taps")),
        Weight("layers.{i}.conv.bias", f"{MIXER}conv1d.bias", "blk.{i}.ssm_conv1d.bias", shape=(channels,), optional=True),
        *mixer,
        *matrix("layers.{i}.out", f"{MIXER}out_proj", "blk.{i}.ssm_out", shape=("hidden", "inner")),
        *matrix("norm", "backbone.norm_f", "output_norm", shape=("hidden",)),
        *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
    )


def named(source: Mapping[str, Any], layer: str, model_type: str) -> tuple[str, Mapping[str, Any]] | None:
    """The first published configurations name no model type, but have ``ssm_cfg``, which names the kind of layer."""
    found = source.get("ssm_cfg")
    return (HF, {**source, "model_type": model_type}) if isinstance(found, dict) and found.get("layer", "Mamba1") == layer else None


def convolved(net: Decoder, x: Value, i: int, channels: int) -> Value:
    """`x` [batch, length, channels] through the short convolution and the activation of layer `i`, zero at padding."""
    config, name = net.config, f"layers.{i}.conv"
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y = short_conv(net, x, net.vector(f"{name}.weight"), bias, f"conv.{i}", channels, config.taps)
    masked: Value = net.Mul(ACTIVATIONS[config.act](net, y), own_mask(net))
    return masked
