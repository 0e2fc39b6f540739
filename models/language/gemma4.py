"""Gemma 4, text (Google 2026): larger heads and proportional RoPE in layers with full attention, per-layer embeddings,
shared keys and values, experts next to the dense network."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight, value_at
from ...runtime.contract.hyperparameter import (
    COUNT,
    EVEN,
    NOT_NEGATIVE,
    Integer,
    Listed,
    ParameterError,
    checked,
    flag,
    mapping,
)
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.gemma_attention import SharedLayers, owns_keys, shared_attention, source_layer
from ..layers.linear import capped
from ..layers.mlp import gated
from ..layers.moe import gated_experts, softmax_router
from ..layers.norm import norm
from ..layers.per_layer_input import KEYS as INPUT_KEYS
from ..layers.per_layer_input import WEIGHTS as INPUT_WEIGHTS
from ..layers.per_layer_input import from_layer_input, layer_inputs
from ..layers.rope import FACTORS, PLAIN, Rotary
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, NORM, attention
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.hyperparameters import (
    DECODER,
    FRACTION,
    FREQUENCY_BASE,
    GEMMA_ACT,
    RMS_EPS,
    Windows,
    matrix,
    shared_heads,
)
from ..schema.layer_kinds import HEADS_KEY
from ..schema.weight_layout import Chunk

UNROTATED = np.float32(1e30)
"""Divisor of the RoPE frequencies of pairs that are not rotated, in GGUF files."""
WHOLE, LOCAL = "rope_parameters.full_attention", "rope_parameters.sliding_attention"
PER_LAYER = "per_layer_config"


def full(config: Config, i: int) -> bool:
    """Whether layer `i` has full attention."""
    return config.windows[i] is None


def sliding(config: Config, i: int) -> bool:
    """Whether layer `i` has a sliding window."""
    return not full(config, i)


def _of_full_layers(source: Mapping[str, Any], config: Config, key: str) -> Any:
    """A setting of layers with full attention as config.json states it, None if it does not."""
    layers = checked(PER_LAYER, source.get(PER_LAYER) or {}, mapping)
    stated = (value_at(layers, f"{i}.{key}") for i in range(config.layers) if full(config, i))
    return next((value for value in stated if value is not None), None)


@dataclass(frozen=True)
class FullHeadDim:
    """Hyper-parameter, read after `Windows`: elements of a head in layers with full attention."""

    name: str = "full_head_dim"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "global_head_dim" if names == HF else "attention.key_length"
        said = _of_full_layers(source, config, "head_dim") if names == HF else None
        found: int = checked(key, source.get(key, 512) if said is None else said, EVEN)
        return found

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {
                "global_head_dim": config.full_head_dim,
                "num_global_key_value_heads": config.full_kv_heads,
                PER_LAYER: {
                    str(i): {"head_dim": config.full_head_dim, "num_key_value_heads": config.full_kv_heads}
                    for i in range(config.layers)
                    if full(config, i)
                },
            }
        sizes = {"": config.full_head_dim, "_swa": config.head_dim}
        keys = ("attention.key_length", "attention.value_length", "rope.dimension_count")
        return {f"{key}{kind}": size for key in keys for kind, size in sizes.items()}


@dataclass(frozen=True)
class KVHeadsOf:
    """Hyper-parameter, read after `Windows`: KV heads of the layers with full attention, or of those with a window.
    GGUF files list them for each layer."""

    name: str
    whole: bool

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "num_key_value_heads" if names == HF else HEADS_KEY
        said = source.get(key, config.heads)
        if names == HF and self.whole:
            other = "num_global_key_value_heads"
            stated = source.get(other) if source.get("attention_k_eq_v") else None
            if PER_LAYER in source:
                stated = _of_full_layers(source, config, key)
            said = said if stated is None else stated
        if isinstance(said, list | tuple):
            listed = checked(key, said, Listed(COUNT, config.layers))
            said = next((listed[i] for i in range(config.layers) if full(config, i) is self.whole), listed[0])
        return shared_heads(key, said, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {} if self.whole else {"num_key_value_heads": config.kv_heads}
        return {HEADS_KEY: [config.full_kv_heads if full(config, i) else config.kv_heads for i in range(config.layers)]}


@dataclass(frozen=True)
class Proportion:
    """Hyper-parameter: fraction of the pairs of a head that layers with full attention rotate. GGUF files store it as
    the tensor rope_freqs."""

    name: str = "proportion"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        if names != HF:
            return 1.0
        kinds = {path: value_at(source, f"{path}.rope_type") for path in (WHOLE, LOCAL)}
        if kinds[WHOLE] not in (None, "proportional", "default") or kinds[LOCAL] not in (None, "default"):
            raise ParameterError("rope_parameters", "only proportional RoPE in full attention is supported")
        key = f"{WHOLE}.partial_rotary_factor"
        default = 0.25 if value_at(source, "rope_parameters") is None else 1.0
        said = value_at(source, key)
        return float(checked(key, default if said is None else said, FRACTION))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {}
        return {
            f"{WHOLE}.rope_type": "proportional",
            f"{WHOLE}.partial_rotary_factor": config.proportion,
            f"{LOCAL}.rope_type": "default",
        }


@dataclass(frozen=True)
class Dense:
    """Hyper-parameter, read after `SharedLayers`: width of the gated networks, and whether layers that use the keys of
    others have twice that. UnsupportedError for attention in both directions."""

    name: str = "intermediate"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if source.get("use_bidirectional_attention") == "all":
            why = "Gemma 4 with attention in both directions is not supported"
            raise UnsupportedError("E-ARCH-CAUSAL", config.values.get("path"), why)
        key = "intermediate_size" if names == HF else "feed_forward_length"
        said = source[key]
        widths = [said] * config.layers if not isinstance(said, list | tuple) else said
        listed = checked(key, widths, Listed(COUNT, config.layers))[: config.layers]
        double = bool(source.get("use_double_wide_mlp")) if names == HF else listed[-1] == 2 * listed[0]
        own, other = listed[0], listed[0] * (2 if double else 1)
        if names != HF and any(width != (own if owns_keys(config, i) else other) for i, width in enumerate(listed)):
            raise ParameterError(key, "layers of these widths are not supported")
        config.values["double"] = double and config.shared > 0
        return int(own)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"intermediate_size": config.intermediate, "use_double_wide_mlp": config.double}
        if not config.double:
            return {"feed_forward_length": config.intermediate}
        widths = [config.intermediate * (2 if wide(config, i) else 1) for i in range(config.layers)]
        return {"feed_forward_length": widths}


@dataclass(frozen=True)
class OfExperts(Key):
    """Hyper-parameter of models with experts; None for dense ones, whose config.json may state it all the same."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        if names == HF and not source.get(MIXED):
            return None
        found: int | None = super().read(names, source, config)
        return found

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = super().write(names, config)
        return {**said, MIXED: True} if names == HF and said else said


MIXED = "enable_moe_block"


def mixed(config: Config, i: int) -> bool:
    """Whether layers have experts."""
    return config.experts is not None


def wide(config: Config, i: int) -> bool:
    """Whether layer `i` has a gated network of twice the width."""
    return bool(config.double and not owns_keys(config, i))


def _default_cap(config: Config) -> float:
    """The default logit cap: none in config.json, llama.cpp's in GGUF files."""
    return 0.0 if config.names == HF else 30.0


@dataclass(frozen=True)
class LogitCap(Key):
    """Hyper-parameter: limit of the logits, 0 for none, which config.json states by leaving the key out."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {} if names == HF and not config.logit_cap else super().write(names, config)


CAP = "final_logit_softcapping"
KEYS = (
    *DECODER, RMS_EPS, GEMMA_ACT, Key("head_dim", "head_dim", "attention.key_length_swa", 256, EVEN),
    Windows(lambda config, i: (i + 1) % 6 != 0, period=6, explicit=True, usual=512), KVHeadsOf("kv_heads", False),
    KVHeadsOf("full_kv_heads", True), FullHeadDim(),
    Key("theta", f"{WHOLE}.rope_theta", "rope.freq_base", 1e6, FREQUENCY_BASE),
    Key("local_theta", f"{LOCAL}.rope_theta", "rope.freq_base_swa", 1e4, FREQUENCY_BASE), Proportion(),
    Key("full_pairs", (), (), lambda config: config.full_head_dim // 2),
    SharedLayers("shared", "num_kv_shared_layers", "attention.shared_kv_layers", 0, Integer(), at_most=("layers",)),
    Dense(), *INPUT_KEYS, LogitCap("logit_cap", CAP, CAP, _default_cap, NOT_NEGATIVE, null=0.0),
    Key("same_values", "attention_k_eq_v", (), False, flag),
    OfExperts("experts", "num_experts", "expert_count", None, COUNT),
    OfExperts("experts_used", "top_k_experts", "expert_used_count", None, COUNT, at_most=("experts",)),
    OfExperts("expert_intermediate", "moe_intermediate_size", "expert_feed_forward_length", None, COUNT),
)  # fmt: skip


def _factors(config: Config) -> StoredTensor | None:
    """Divisors of the RoPE frequencies of layers with full attention, f32 [full_pairs]."""
    factors = np.ones(config.full_pairs, np.float32)
    factors[int(config.proportion * config.full_head_dim // 2) :] = UNROTATED
    return StoredTensor.of(factors)


def _of_kinds(rows: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """Rows for layers with a window, and the same for layers with full attention, whose heads have other sizes."""
    names = {"head_dim": "full_head_dim", "kv_heads": "full_kv_heads"}

    def sized(length: str | int) -> str | int:
        return "*".join(names.get(name, name) for name in length.split("*")) if isinstance(length, str) else length

    others = (
        replace(row, shape=None if row.shape is None else tuple(map(sized, row.shape)), when=full) for row in rows
    )
    return (*(replace(row, when=sliding) for row in rows), *others)


def _norm(name: str, hf: str, gguf: str, width: str = "hidden") -> tuple[Weight, Weight]:
    return matrix(f"layers.{{i}}.{name}", f"model.layers.{{i}}.{hf}", f"blk.{{i}}.{gguf}", shape=(width,))


OPTIONAL = tuple(f"layers.{{i}}.attn.{part}" for part in ("k.", "v.", "k_norm."))
HEAD_WEIGHTS = tuple(
    replace(row, optional=True) if row.name.startswith(OPTIONAL) else row
    for row in (
        *attention(),
        *_norm("attn.q_norm", "self_attn.q_norm", "attn_q_norm", "head_dim"),
        *_norm("attn.k_norm", "self_attn.k_norm", "attn_k_norm", "head_dim"),
    )
)
"""Layers that use the keys and values of others may have weights for them all the same."""
NARROW = tuple(replace(row, when=lambda config, i: not wide(config, i)) for row in GATED)
DOUBLE = tuple(
    replace(
        row, shape=tuple("2*intermediate" if each == "intermediate" else each for each in row.shape or ()), when=wide
    )
    for row in GATED
)
BOTH = "model.layers.{i}.experts.gate_up_proj", "blk.{i}.ffn_gate_up_exps.weight"
EXPERT = ("experts", "expert_intermediate", "hidden")
MIXTURE = tuple(
    replace(row, when=mixed)
    for row in (
        *_norm("mlp_alone_norm", "post_feedforward_layernorm_1", "post_ffw_norm_1"),
        *_norm("moe_norm", "pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
        *_norm("after_moe", "post_feedforward_layernorm_2", "post_ffw_norm_2"),
        *matrix("layers.{i}.moe.router", "model.layers.{i}.router.proj", "blk.{i}.ffn_gate_inp",
                shape=("experts", "hidden")),
        Weight("layers.{i}.moe.router_norm.weight", "model.layers.{i}.router.scale", "blk.{i}.ffn_gate_inp.scale",
               shape=("hidden",)),
        Weight("layers.{i}.moe.scale", "model.layers.{i}.router.per_expert_scale", "blk.{i}.ffn_down_exps.scale",
               shape=("experts",)),
        Weight("layers.{i}.moe.experts.gate.weight", Stored((BOTH[0],), Chunk(0, axis=1)),
               Stored((BOTH[1],), Chunk(0, axis=1)), shape=EXPERT),
        Weight("layers.{i}.moe.experts.up.weight", Stored((BOTH[0],), Chunk(1, axis=1)),
               Stored((BOTH[1],), Chunk(1, axis=1)), shape=EXPERT),
        Weight("layers.{i}.moe.experts.down.weight", "model.layers.{i}.experts.down_proj",
               "blk.{i}.ffn_down_exps.weight", shape=("experts", "hidden", "expert_intermediate")),
    )
)  # fmt: skip
"""The experts, and norms of what they and the dense network compute."""
WEIGHTS = (
    Weight("rope.factors", (), "rope_freqs.weight", shape=("full_pairs",), optional=True, compute=_factors),
    *EMBED, *INPUT_WEIGHTS, *ATTN_NORM, *_of_kinds(HEAD_WEIGHTS),
    *_norm("after_attn", "post_attention_layernorm", "post_attention_norm"),
    *_norm("mlp_norm", "pre_feedforward_layernorm", "ffn_norm"), *NARROW, *DOUBLE,
    *_norm("after_mlp", "post_feedforward_layernorm", "post_ffw_norm"), *MIXTURE,
    Weight("layers.{i}.scale", "model.layers.{i}.layer_scalar", "blk.{i}.layer_output_scale.weight", shape=(1,),
           optional=True),
    *NORM, *HEAD,
)  # fmt: skip


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Find out how many pairs are rotated, and whether values are keys."""
    factors = weights["rope.factors"].numpy()
    config.values["proportion"] = float((factors < UNROTATED).mean())
    config.values["same_values"] = any(
        full(config, i) and owns_keys(config, i) and f"layers.{i}.attn.v.weight" not in weights
        for i in range(config.layers)
    )


def build(net: Decoder) -> None:
    """Norms before and after attention and a gated network; then the layer's own embedding, and a scale."""
    config = net.config
    whole = Rotary(config.full_head_dim, config.theta, {"type": FACTORS}, config.context, factors="rope.factors")
    local = Rotary(config.head_dim, config.local_theta, PLAIN, config.context)
    kept: dict[int, tuple[Value, Value]] = {}
    x = net.begin(scale=math.sqrt(config.hidden))
    inputs = layer_inputs(net, x) if config.layer_size else []
    for i in range(config.layers):
        name = f"layers.{i}"
        rotary, size, heads = (
            (whole, config.full_head_dim, config.full_kv_heads)
            if full(config, i)
            else (local, config.head_dim, config.kv_heads)
        )
        y = shared_attention(net, norm(net, x, f"{name}.attn_norm"), i, rotary, size, heads, kept)
        x = net.Add(x, norm(net, y, f"{name}.after_attn"))
        y = gated(net, norm(net, x, f"{name}.mlp_norm"), f"{name}.mlp", config.act)
        y = with_experts(net, x, y, name) if mixed(config, i) else y
        x = net.Add(x, norm(net, y, f"{name}.after_mlp"))
        if inputs:
            x = net.Add(x, from_layer_input(net, x, inputs[i], i))
        if net.has(f"{name}.scale"):
            x = net.Mul(x, net.vector(f"{name}.scale"))
    net.end(x, norm, change=lambda logits: capped(net, logits))


def with_experts(net: Decoder, x: Value, dense: Value, name: str) -> Value:
    """The sum of what the dense network and the experts of a layer make of `x`, each normalized. The router reads `x`
    under a norm of its own; the weights of the experts sum to one before each is scaled."""
    config = net.config

    def route(logits: Value) -> tuple[Value, Value]:
        weights, ids = softmax_router(net, logits, config.experts_used, normalize=True)
        return net.Mul(weights, net.Gather(net.vector(f"{name}.moe.scale"), ids)), ids

    judged = net.Mul(norm(net, x, f"{name}.moe.router_norm"), config.hidden**-0.5)
    given = norm(net, x, f"{name}.moe_norm")
    y = gated_experts(net, given, f"{name}.moe", route, hidden=config.hidden, act=config.act, judged=judged)
    value: Value = net.Add(norm(net, dense, f"{name}.mlp_alone_norm"), norm(net, y, f"{name}.after_moe"))
    return value


def _reused_layers(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose last layers with keys of their own are not a windowed and a full one: llama.cpp has
    the others use these two."""
    own = config.layers - config.shared
    shared = range(own, config.layers)
    if all(source_layer(config, i) == own - (1 if config.windows[i] is None else 2) for i in shared):
        return None
    return f"does not run models of this architecture with num_kv_shared_layers {config.shared} and these layer_types"


ARCHITECTURES = (
    Architecture(
        "gemma4",
        "Gemma 4, text",
        ("gemma4_text",),
        ("gemma4",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        tied=True,
        wide_activations=True,
        deviations=(Unread(PROJECTION_BIAS), _reused_layers),
        defaults={"gemma4_text": {"num_key_value_heads": 4, "max_position_embeddings": 131072, "pad_token_id": 0}},
    ),
)
