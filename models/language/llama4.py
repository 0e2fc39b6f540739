"""Llama 4, text (Meta 2025): chunked attention with rotary embedding, full attention without it, and mixtures of
experts whose inputs are scaled by the router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, SIZE, Listed, checked, flag, word
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import gated_experts, top
from ..layers.norm import norm
from ..layers.rope import LLAMA3_FACTORS, Rotary, Scaling, settle_llama3
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, attention
from ..schema.fused_weight_layout import HalfColumns, TransposedExperts
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HEADS,
    RMS_EPS_5,
    ROTARY_PAIRS,
    TOKENS,
    WHOLE_ROTARY,
    act,
    frequency_base,
    matrix,
)
from ..schema.layer_kinds import UsesRope

CHUNK, WITHOUT_QK_NORM = 8192, 128
"""Constants that GGUF files imply: length of a chunk, and the number of experts of the model that does not normalize
queries."""


@dataclass(frozen=True)
class Chunks:
    """Hyper-parameter, read after `UsesRope`: chunk length of each layer's attention, None for full attention."""

    name: str = "chunks"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        hf = names == HF
        key = "attention_chunk_size" if hf else "attention.sliding_window"
        said = source.get(key, CHUNK)
        size = checked(key, said or 0, SIZE) if hf or not said else CHUNK
        kinds = checked("layer_types", (source.get("layer_types") if hf else None) or [], Listed(word))
        chunked = [kind == "chunked_attention" for kind in kinds] or config.uses_rope
        if len(chunked) < config.layers:
            raise ValueError(f"layer_types lists {counted(len(chunked), 'layer')} of {config.layers:,}")
        return [size if size and each else None for each in chunked[: config.layers]]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        sizes = {size for size in config.chunks if size}
        if names != HF:
            return {} if sizes else {"attention.sliding_window": 0}
        kinds = ["chunked_attention" if size else "full_attention" for size in config.chunks]
        return {"attention_chunk_size": max(sizes, default=CHUNK), "layer_types": kinds}


@dataclass(frozen=True)
class MixtureLayers:
    """Hyper-parameter: indices of the layers with mixtures of experts; GGUF files store their distance."""

    name: str = "mixtures"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        if names == HF and source.get("moe_layers") is not None:
            layers: list[int] = checked("moe_layers", source["moe_layers"], Listed(SIZE, most=config.layers))
            return layers
        key = "interleave_moe_layer_step"
        step = checked(key, source.get(key, 1), SIZE)
        return list(range(step - 1, config.layers, step)) if step else []

    def write(self, names: str, config: Config) -> dict[str, Any]:
        step = config.mixtures[0] + 1 if config.mixtures else 0
        if names == HF:
            return {"moe_layers": config.mixtures}
        if config.mixtures != (list(range(step - 1, config.layers, step)) if step else []):
            why = f"GGUF files cannot store that the layers {config.mixtures} are mixtures of experts"
            raise UnsupportedError("E-ARCH-GGUF", None, why, expected="one distance")
        return {"interleave_moe_layer_step": step}


def tuned(value: Any) -> bool:
    """A switch that published files also write as a number above 1."""
    return bool(SIZE(value)) if not isinstance(value, bool) else value


UNSCALED = dict.fromkeys(("attention_factor", "short_mscale", "long_mscale"), 1.0)
"""Parameters of a RoPE scaling that leaves the lengths of queries and keys unchanged."""

KEYS = (
    *DECODER, *HEADS, RMS_EPS_5,
    frequency_base(5e5), Scaling(),
    act("silu"), WHOLE_ROTARY, ROTARY_PAIRS, TOKENS, UsesRope(), Chunks(),
    Key("intermediate", "intermediate_size_mlp", "feed_forward_length", 16384, COUNT),
    Key("expert_intermediate", "intermediate_size", "expert_feed_forward_length", kind=COUNT),
    Key("experts", "num_local_experts", "expert_count", 16, COUNT), EXPERTS_USED, MixtureLayers(),
    Key("qk_norm", "use_qk_norm", (), lambda config: config.names == HF or config.experts != WITHOUT_QK_NORM, flag),
    Key("tuned", "attn_temperature_tuning", (), True, tuned),
    Key("temperature", "attn_scale", (), 0.1, NOT_NEGATIVE), Key("floor", "floor_scale", (), CHUNK, COUNT),
)  # fmt: skip


def sparse(config: Config, i: int) -> bool:
    """Whether layer `i` is a mixture of experts."""
    return i in config.mixtures


def dense(config: Config, i: int) -> bool:
    """Whether layer `i` has a dense gated network."""
    return not sparse(config, i)


NETWORKS, GGUF_NAMES, OURS = "model.layers.{i}.feed_forward.", "blk.{i}.ffn_", "layers.{i}.mlp."
WIDE, EXPERT = ("intermediate", "hidden"), ("expert_intermediate", "hidden")
BOTH = f"{NETWORKS}experts.gate_up_proj"
WEIGHTS = (
    LLAMA3_FACTORS, *EMBED, *ATTN_NORM, *attention(), *MLP_NORM,
    *matrix(f"{OURS}gate", f"{NETWORKS}gate_proj", f"{GGUF_NAMES}gate", shape=WIDE, when=dense),
    *matrix(f"{OURS}up", f"{NETWORKS}up_proj", f"{GGUF_NAMES}up", shape=WIDE, when=dense),
    *matrix(f"{OURS}down", f"{NETWORKS}down_proj", f"{GGUF_NAMES}down", shape=WIDE[::-1], when=dense),
    *matrix(f"{OURS}router", f"{NETWORKS}router", f"{GGUF_NAMES}gate_inp", shape=("experts", "hidden"), when=sparse),
    Weight(f"{OURS}experts.gate.weight", Stored((BOTH,), HalfColumns(0)), f"{GGUF_NAMES}gate_exps.weight",
           shape=("experts", *EXPERT), when=sparse),
    Weight(f"{OURS}experts.up.weight", Stored((BOTH,), HalfColumns(1)), f"{GGUF_NAMES}up_exps.weight",
           shape=("experts", *EXPERT), when=sparse),
    Weight(f"{OURS}experts.down.weight", Stored((f"{NETWORKS}experts.down_proj",), TransposedExperts()),
           f"{GGUF_NAMES}down_exps.weight", shape=("experts", *EXPERT[::-1]), when=sparse),
    *matrix(f"{OURS}shared.gate", f"{NETWORKS}shared_expert.gate_proj", f"{GGUF_NAMES}gate_shexp", shape=EXPERT,
            when=sparse),
    *matrix(f"{OURS}shared.up", f"{NETWORKS}shared_expert.up_proj", f"{GGUF_NAMES}up_shexp", shape=EXPERT,
            when=sparse),
    *matrix(f"{OURS}shared.down", f"{NETWORKS}shared_expert.down_proj", f"{GGUF_NAMES}down_shexp", shape=EXPERT[::-1],
            when=sparse),
    *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: attention within chunks with rotary embedding, or over all tokens without; then a gated network
    or a mixture of them with a shared expert."""
    config = net.config
    # the norms of heads, which come after their rotation, undo its scale
    scaling = {**config.scaling, **UNSCALED} if config.qk_norm else config.scaling
    rotary = Rotary(config.rotary, config.theta, scaling, config.context, interleaved=True, factors="rope.factors")
    x = net.begin()
    for i, (chunk, uses_rope) in enumerate(zip(config.chunks, config.uses_rope, strict=True)):
        h = norm(net, x, f"layers.{i}.attn_norm")
        # the norm of a head and its rotation commute
        normed = (_unit_heads if config.qk_norm else _unchanged) if uses_rope else _tempered
        scores = Scores(chunked=True)
        y = self_attention(net, h, i, rotary if uses_rope else None, window=chunk, scores=scores, normed=normed)
        x = net.Add(x, y)
        h = norm(net, x, f"layers.{i}.mlp_norm")
        name = f"layers.{i}.mlp"
        x = net.Add(x, _mixture(net, h, name) if sparse(config, i) else gated(net, h, name, config.act))
    net.end(x, norm)


def _unchanged(net: Decoder, x: Value, name: str, heads: int) -> Value:
    return x


def _unit_heads(net: Decoder, x: Value, name: str, heads: int) -> Value:
    config = net.config
    ones = net.once("unit", lambda: net.constant(np.ones(config.head_dim, np.float32)))
    return net.merge_heads(net.RMSNormalization(net.split_heads(x, heads, config.head_dim), ones, epsilon=config.eps))


def _tempered(net: Decoder, x: Value, name: str, heads: int) -> Value:
    """Queries times 1 + scale x log(1 + floor((position + 1) / floor)) (Nakanishi 2025, arXiv:2501.19399); keys
    unchanged."""
    config = net.config

    def temperature() -> Value:
        position = net.Add(net.Cast(net.Unsqueeze(net.positions, [2]), to=1), 1.0)
        steps = net.Floor(net.Div(position, float(config.floor)))
        return net.Add(net.Mul(net.Log(net.Add(steps, 1.0)), config.temperature), 1.0)

    return net.Mul(x, net.once("temperature", temperature)) if config.tuned and name.endswith("q_norm") else x


def _mixture(net: Decoder, x: Value, name: str) -> Value:
    config = net.config

    def route(logits: Value) -> tuple[Value, Value]:
        best, ids = top(net, logits, config.experts_used)
        return net.Sigmoid(best), ids

    y = gated_experts(net, x, name, route, hidden=config.hidden, act=config.act, scaled_inputs=True)
    return net.Add(y, gated(net, x, f"{name}.shared", config.act))


ARCHITECTURES = (
    Architecture(
        "llama4",
        "Llama 4, text",
        ("llama4_text",),
        ("llama4",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle_llama3,
        deviations=(Unread(PROJECTION_BIAS),),
        defaults={"llama4_text": {"head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 131072}},
    ),
)
