"""RWKV layers shared by versions 5 to 7: token shift, head norms, channel mixing, hyper-parameters and weight
bindings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, SAME, Config, Key, Layout, Stored, Weight
from ....runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, SIZE, checked
from ....runtime.ir.graph import Graph, Value
from ...schema.hyperparameters import LAYERS, TaskName, Vocabulary
from ...schema.weight_layout import Reshaped
from ..decoder import Decoder
from ..linear import linear
from .recurrence import token_mask

LIMIT = 2**20
"""Context length that GGUF files give models without a limit."""
SINGLETON_AXES = Reshaped(("hidden",), (1, 1, "hidden"))
"""A vector that published checkpoints store as [1, 1, hidden]."""


@dataclass(frozen=True)
class Halving:
    """Hyper-parameter: number of layers after which the residual stream is halved to stay in the range of f16; 0 for
    never.

    The layers' outputs are divided to match: GGUF files store the divided weights, Hugging Face checkpoints the trained
    ones (see `halved`).
    """

    name: str = "halving"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "rescale_every" if names == HF else "rescale_every_n_layers"
        every: int = checked(key, source.get(key) or 0, SIZE)
        return every

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"rescale_every" if names == HF else "rescale_every_n_layers": config.halving}


def halved(config: Config, i: int) -> float:
    """Factor of the matrices that write layer `i`'s output."""
    return 2.0 ** -(i // config.halving) if config.halving else 1.0


KEYS = (
    TaskName(), Vocabulary(), Key("context", (), "context_length", LIMIT, COUNT),
    Key("hidden", "hidden_size", "embedding_length", kind=COUNT),
    Key("layers", "num_hidden_layers", "block_count", kind=LAYERS), Key("no_heads", (), "attention.head_count", 0),
    Key("eps", ("layer_norm_epsilon", "norm_eps"), "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE),
    Key("head_size", ("head_size", "head_dim"), "wkv.head_size", 64, COUNT),
    Key("heads", (), (), lambda config: config.hidden // config.head_size, COUNT),
)  # fmt: skip
DIVISOR = (
    Key("divisor", "head_size_divisor", (), 8.0, POSITIVE),
    Key("head_eps", (), (), lambda config: 1e-5 * config.divisor**2, POSITIVE), Halving(),
)  # fmt: skip


def either(*names: str, layout: Layout = SAME) -> tuple[Stored, ...]:
    """Alternative names, of which a file has one."""
    return tuple(Stored((name,), layout) for name in names)


def part(
    name: str,
    names: tuple[str, ...],
    gguf: str | None = None,
    *,
    shape: tuple[str | int, ...] | None = None,
    biased: bool = False,
    **more: Any,
) -> tuple[Weight, ...]:
    """Bindings of ``NAME.weight`` and, if `biased`, ``NAME.bias``, which files have under one of `names`."""
    kinds = ("weight", "bias") if biased else ("weight",)
    return tuple(
        Weight(f"{name}.{kind}", either(*(f"{way}.{kind}" for way in names)), () if gguf is None else f"{gguf}.{kind}",
               shape=shape[:1] if shape and kind == "bias" else shape, **more)
        for kind in kinds
    )  # fmt: skip


def shifted(net: Decoder, x: Value, state: str) -> tuple[Value, Value]:
    """`x` [batch, length, hidden], zero at padding, and its difference to the previous token; the last token is a
    state."""
    x = net.Mul(x, token_mask(net))
    whole = net.Concat(net.past(state, (1, net.config.hidden)), x, axis=1)
    net.present(state, net.Slice(whole, [-1], [2**62], [1]))
    return x, net.Sub(net.Slice(whole, [0], [-1], [1]), x)


def lerp(net: Decoder, x: Value, difference: Value, name: str) -> Value:
    """`x` interpolated with the previous token by ``NAME``, per channel."""
    y: Value = net.Add(x, net.Mul(difference, net.vector(name)))
    return y


def split_heads(net: Decoder, x: Value, *, column: bool = False) -> Value:
    """[batch, length, hidden] as rows [batch, length, heads, 1, size], or as columns [..., size, 1]."""
    size = net.config.head_size
    value: Value = net.Reshape(x, [0, 0, net.config.heads, *((size, 1) if column else (1, size))])
    return value


def heads_normed(net: Decoder, y: Value, name: str) -> Value:
    """Group norm of heads [batch, length, heads, ...] with weight and bias; returns [batch, length, hidden]."""
    config = net.config
    y = net.Reshape(y, [0, 0, config.heads, config.head_size])
    y = net.LayerNormalization(y, np.ones(config.head_size, np.float32), epsilon=config.head_eps)
    normed: Value = net.Add(net.Mul(net.merge_heads(y), net.vector(f"{name}.weight")), net.vector(f"{name}.bias"))
    return normed


def squared(net: Decoder, x: Value, name: str) -> Value:
    """Channel mixing: value(relu(key(x))^2)."""
    y = net.Relu(linear(net, x, f"{name}.key"))
    return linear(net, net.Mul(y, y), f"{name}.value")


def infer_config(graph: Graph, marks: str, model_type: str, heads: str) -> tuple[str, Mapping[str, Any]] | None:
    """Hyper-parameters inferred from the weights of a checkpoint without config.json, which has its author's names.

    Args:
        marks: name of a weight that only this version has.
        heads: name of a weight [heads, size].
    """
    weights = graph.weights
    needed = [weights.get(name) for name in ("emb.weight", "blocks.0.ffn.key.weight", marks, heads)]
    if any(tensor is None or len(tensor.shape) < 2 for tensor in needed):
        return None
    embedding, key, _, size = (tensor.shape for tensor in needed if tensor is not None)
    layers = {int(found[1]) for name in weights if (found := re.match(r"blocks\.(\d{1,6})\.", name))}
    return HF, {
        "model_type": model_type,
        "vocab_size": embedding[0],
        "hidden_size": embedding[1],
        "num_hidden_layers": len(layers),
        "head_size": size[1],
        "intermediate_size": key[0],
    }
