"""Gemma 3n, text (Google 2025): AltUp (Baykal et al. 2023, arXiv:2301.13310), LAuReL (Menghani et al. 2024,
arXiv:2411.07501), per-layer embeddings, shared keys and values, sparse activations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import (
    COUNT,
    NOT_NEGATIVE,
    SIZE,
    Integer,
    Listed,
    ParameterError,
    Real,
    checked,
    flag,
)
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.gemma_attention import SharedLayers, shared_attention
from ..layers.linear import capped, linear
from ..layers.mlp import ACTIVATIONS
from ..layers.moe import matmul_experts
from ..layers.norm import norm
from ..layers.per_layer_input import KEYS as INPUT_KEYS
from ..layers.per_layer_input import WEIGHTS as INPUT_WEIGHTS
from ..layers.per_layer_input import from_layer_input, layer_inputs
from ..layers.rope import TWO_ROPES, rotaries
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, NORM, QK_NORM, attention
from ..schema.gguf.deviations import BIAS, Unread
from ..schema.hyperparameters import DECODER, GEMMA_ACT, HEADS, RMS_EPS, Windows, matrix
from ..schema.weight_layout import Stacked

SPARSE_LAYERS, SPARSITY = 10, 0.95
"""Defaults: the first layers keep the largest twentieth of their activations."""
NORMAL = NormalDist()


@dataclass(frozen=True)
class Sparsity:
    """Hyper-parameter: fraction of each layer's activations that are zero. GGUF files store how many standard
    deviations above the mean the others are."""

    name: str = "sparsity"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[float]:
        if names == HF:
            key = "activation_sparsity_pattern"
            said = source.get(key)
            if said is None:
                return [SPARSITY if i < SPARSE_LAYERS else 0.0 for i in range(config.layers)]
            stated = said if isinstance(said, list | tuple) else [said] * config.layers
            found: list[float] = checked(key, stated, Listed(Real(0, 1 - 1e-6), config.layers))
            return found[: config.layers]
        key = "activation_sparsity_scale"
        return checked(key, source.get(key), Listed(_fraction, config.layers))[: config.layers]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"activation_sparsity_pattern": config.sparsity}
        return {"activation_sparsity_scale": [NORMAL.inv_cdf(each) if each else -math.inf for each in config.sparsity]}


def _fraction(value: Any) -> float:
    """The fraction of a normal distribution below `value` standard deviations."""
    return 0.0 if value == -math.inf else round(NORMAL.cdf(Real(-10, 4.7)(value)), 6)


@dataclass(frozen=True)
class Width:
    """Hyper-parameter: width of the gated networks, which config.json and GGUF state once or for each layer."""

    name: str = "intermediate"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "intermediate_size" if names == HF else "feed_forward_length"
        said = source[key]
        widths = set(checked(key, said if isinstance(said, list | tuple) else [said], Listed(COUNT, 1)))
        if len(widths) > 1:
            raise ParameterError(key, "layers of different widths are not supported")
        (width,) = widths
        return int(width)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"intermediate_size" if names == HF else "feed_forward_length": config.intermediate}


KEYS = (
    *DECODER, *HEADS, RMS_EPS, Width(), GEMMA_ACT,
    Windows(lambda config, i: (i + 1) % 5 != 0, period=5, explicit=True, usual=512), *TWO_ROPES,
    SharedLayers("shared", "num_kv_shared_layers", "attention.shared_kv_layers", 15, at_most=("layers",)),
    Sparsity(), *INPUT_KEYS,
    Key("copies", "altup_num_inputs", "altup.num_inputs", 4, Integer(2, 64)),
    Key("active", "altup_active_idx", "altup.active_idx", 0, SIZE, at_most=("others",)),
    Key("others", (), (), lambda config: config.copies - 1), Key("rank", "laurel_rank", (), 64, COUNT),
    Key("scaled", "altup_correct_scale", (), True, flag),
    Key("logit_cap", "final_logit_softcapping", (), 30.0, NOT_NEGATIVE, null=0.0),
)  # fmt: skip
COPIES, LAYER_INPUT = 4, 256
"""Sizes that llama.cpp has as constants."""
NARROW = 1024
"""Width up to which the standard deviation of a sample is not that of all units, to the precision of f16."""
OWN_LAYERS = 20
"""Layers with keys and values of their own that llama.cpp expects."""
HF_LAYER, GGUF_LAYER = "model.layers.{i}.", "blk.{i}."


def _layer(name: str, hf: str, gguf: str, *shape: str | int) -> tuple[Weight, Weight]:
    return matrix(f"layers.{{i}}.{name}", HF_LAYER + hf, GGUF_LAYER + gguf, shape=shape)


def _stacked(name: str, hf: str, gguf: str) -> Weight:
    stored = Stored((f"model.{hf}.{{e}}.weight",), Stacked(), "others")
    return Weight(f"{name}.weight", stored, f"{gguf}.weight", shape=("others", "hidden", "hidden"))


def _optional_keys(row: Weight) -> Weight:
    """Layers that use the keys and values of others may have weights for them all the same."""
    return replace(row, optional=True) if row.name.startswith(KEY_WEIGHTS) else row


KEY_WEIGHTS = tuple(f"layers.{{i}}.attn.{part}" for part in ("k.", "v.", "k_norm."))
WEIGHTS = (
    *EMBED, *INPUT_WEIGHTS, _stacked("altup.proj", "altup_projections", "altup_proj"),
    _stacked("altup.unembed", "altup_unembed_projections", "altup_unembd_proj"),
    *ATTN_NORM, *(_optional_keys(row) for row in (*attention(), *QK_NORM)),
    *_layer("after_attn", "post_attention_layernorm", "post_attention_norm", "hidden"),
    *_layer("mlp_norm", "pre_feedforward_layernorm", "ffn_norm", "hidden"), *GATED,
    *_layer("after_mlp", "post_feedforward_layernorm", "post_ffw_norm", "hidden"),
    *_layer("altup.correct", "altup.correction_coefs", "altup_correct_coef", "copies", "copies"),
    *_layer("altup.predict", "altup.prediction_coefs", "altup_predict_coef", "copies*copies", "copies"),
    *_layer("altup.router", "altup.modality_router", "altup_router", "copies", "hidden"),
    *_layer("altup.router_norm", "altup.router_norm", "altup_router_norm", "hidden"),
    Weight("layers.{i}.altup.scale", f"{HF_LAYER}altup.correct_output_scale",
           f"{GGUF_LAYER}altup_correct_scale.weight", shape=("hidden",)),
    *_layer("laurel.left", "laurel.linear_left", "laurel_l", "rank", "hidden"),
    *_layer("laurel.right", "laurel.linear_right", "laurel_r", "hidden", "rank"),
    *_layer("laurel.norm", "laurel.post_laurel_norm", "laurel_post_norm", "hidden"),
    *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Layers on several copies of the hidden state, of which one is active: AltUp predicts all, the layer computes the
    active one, AltUp corrects the others."""
    config = net.config
    whole, local = rotaries(config)
    kept: dict[int, tuple[Value, Value]] = {}
    x = net.begin(scale=math.sqrt(config.hidden))
    inputs = layer_inputs(net, x)
    copies = net.Concat(net.Unsqueeze(x, [2]), _projected(net, x, x, "altup.proj"), axis=2)
    for i, window in enumerate(config.windows):
        name = f"layers.{i}"
        copies = _predicted(net, copies, name)
        active = _active(net, copies)
        h = norm(net, active, f"{name}.attn_norm")
        y = shared_attention(net, h, i, local if window else whole, config.head_dim, config.kv_heads, kept)
        y = net.Add(active, norm(net, y, f"{name}.after_attn"))
        laurel = linear(net, linear(net, h, f"{name}.laurel.left"), f"{name}.laurel.right")
        laurel = net.Add(h, norm(net, laurel, f"{name}.laurel.norm"))
        y = net.Mul(net.Add(y, laurel), 2**-0.5)
        out = _sparse_network(net, norm(net, y, f"{name}.mlp_norm"), i)
        y = net.Add(y, norm(net, out, f"{name}.after_mlp"))
        copies = _corrected(net, copies, active, y, name)
        first = _active(net, copies)
        first = net.Mul(first, net.vector(f"{name}.altup.scale")) if config.scaled else first
        added = net.Unsqueeze(from_layer_input(net, first, inputs[i], i), [2])
        kept_copy, others = net.split(copies, [1, config.others], 2)
        copies = net.Concat(kept_copy, net.Add(others, added), axis=2)
    first, others = net.split(copies, [1, config.others], 2)
    others = _projected(net, others, net.Squeeze(first, [2]), "altup.unembed")
    net.end(
        net.ReduceMean(net.Concat(first, others, axis=2), [2], keepdims=0),
        norm,
        change=lambda logits: capped(net, logits),
    )


def _projected(net: Decoder, x: Value, like: Value, name: str) -> Value:
    """The other copies [batch, length, others, hidden]: matrices ``NAME.weight`` times `x`, which is one for all
    [batch, length, hidden] or one for each, with the magnitude of `like` [batch, length, hidden]."""
    config, each = net.config, x is not like
    rows = net.Reshape(x, [-1, config.others, config.hidden] if each else [-1, config.hidden])
    count = net.Concat(net.Shape(rows, start=0, end=1), [1], axis=0)
    ids = net.Expand(net.constant([list(range(config.others))], "int64"), count)
    y = net.split_heads(
        net.Reshape(
            matmul_experts(net, rows, name, ids, each=each),
            net.Concat(net.Shape(like, start=0, end=2), [config.others * config.hidden], axis=0),
        ),
        config.others,
        config.hidden,
    )
    wanted = net.Sqrt(net.ReduceMean(net.Mul(like, like), [2]))
    found = net.Sqrt(net.Max(net.ReduceMean(net.Mul(y, y), [3]), 1e-5))
    return net.Div(net.Mul(y, net.Unsqueeze(wanted, [2])), found)


def _active(net: Decoder, copies: Value) -> Value:
    """The active copy [batch, length, hidden]."""
    index = net.config.active
    return net.Squeeze(net.Slice(copies, [index], [index + 1], [2]), [2])


def _modalities(net: Decoder, x: Value, name: str) -> Value:
    """The router's outputs [batch, length, copies]."""
    return net.Tanh(
        linear(net, net.Mul(norm(net, x, f"{name}.altup.router_norm"), 1 / net.config.hidden), f"{name}.altup.router")
    )


def _predicted(net: Decoder, copies: Value, name: str) -> Value:
    count = net.config.copies
    weights = linear(net, _modalities(net, _active(net, copies), name), f"{name}.altup.predict")
    return net.Add(net.MatMul(net.split_heads(weights, count, count), copies), copies)


def _corrected(net: Decoder, copies: Value, predicted: Value, active: Value, name: str) -> Value:
    weights = net.Add(linear(net, _modalities(net, active, name), f"{name}.altup.correct"), 1.0)
    change = net.Unsqueeze(net.Sub(active, predicted), [2])
    return net.Add(copies, net.Mul(change, net.Unsqueeze(weights, [3])))


def _sparse_network(net: Decoder, x: Value, i: int) -> Value:
    """Gated network; in layers with sparse activations, gates below a normal distribution's quantile are zero before
    the activation."""
    config, name = net.config, f"layers.{i}.mlp"
    gate = linear(net, x, f"{name}.gate")
    if config.sparsity[i]:
        mean = net.ReduceMean(gate, [2])
        centred = net.Sub(gate, mean)
        deviation = net.Sqrt(net.ReduceMean(net.Mul(centred, centred), [2]))
        gate = net.Relu(net.Sub(centred, net.Mul(deviation, NORMAL.inv_cdf(config.sparsity[i]))))
    return linear(net, net.Mul(ACTIVATIONS[config.act](net, gate), linear(net, x, f"{name}.up")), f"{name}.down")


def _fixed_sharing(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose layers that share keys and values are not those after the 20th."""
    if config.layers - config.shared == min(OWN_LAYERS, config.layers):
        return None
    return f"does not load models of this architecture whose first {OWN_LAYERS} layers share keys and values"


def _first_copy(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose active copy of the hidden state is not the first."""
    return f"computes altup_active_idx 0 in place of {config.active}" if config.active else None


def _fixed_sparsity(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose first layers keep another share of their activations than the published ones."""
    if all(sparsity == (SPARSITY if i < SPARSE_LAYERS else 0.0) for i, sparsity in enumerate(config.sparsity)):
        return None
    return f"computes activation_sparsity_pattern {SPARSITY} in the first {SPARSE_LAYERS} layers, and 0 in others"


def _sample_variance(config: Config, names: Collection[str]) -> str | None:
    """Deviation of sparse activations, whose cutoff llama.cpp computes by the variance of a sample: it divides by the
    width less one, which f16 shows where networks are narrow."""
    if not any(config.sparsity) or config.intermediate > NARROW:
        return None
    return f"keeps activations by another cutoff in networks of up to {counted(NARROW, 'unit')}"


def _fixed_widths(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose sizes of AltUp and per-layer inputs are not those of the published ones."""
    if (config.copies, config.layer_size) == (COPIES, LAYER_INPUT):
        return None
    return (
        f"loads models of this architecture with altup_num_inputs {COPIES} and hidden_size_per_layer_input "
        f"{LAYER_INPUT} only"
    )


ARCHITECTURES = (
    Architecture(
        "gemma3n",
        "Gemma 3n, text",
        ("gemma3n_text",),
        ("gemma3n",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        wide_activations=True,
        deviations=(Unread(BIAS), _fixed_sharing, _first_copy, _fixed_sparsity, _fixed_widths, _sample_variance),
        defaults={
            "gemma3n_text": {
                "head_dim": 256,
                "num_key_value_heads": 2,
                "max_position_embeddings": 32768,
                "pad_token_id": 0,
                "vocab_size_per_layer_input": 262144,
            }
        },
    ),
)
