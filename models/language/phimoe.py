"""Phi-3.5-MoE (Abdin et al. 2024, arXiv:2404.14219): layer norms, two experts chosen one after the other by SparseMixer
(Liu et al. 2024, arXiv:2409.12136), LongRoPE.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Integer
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.moe import gated_experts, top
from ..layers.norm import bias_norm
from ..layers.rope import LONGROPE, LONGROPE_FACTORS, Rotary, Scaling, settle_longrope
from ..schema.decoder_weights import ATTN_NORM, BLOCK_SPARSE, EMBED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import ignored_windows
from ..schema.gguf.required import OUTPUT_BIAS, OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    ROTARY_PAIRS,
    WHOLE_ROTARY,
    Fixed,
    Windows,
    act,
    frequency_base,
)


@dataclass(frozen=True)
class TwoFactorScaling(Scaling):
    """Hyper-parameter: RoPE scaling. A config.json states the attention factor of either set of LongRoPE factors."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = super().write(names, config)
        if names == HF and config.scaling["type"] == "longrope":
            factor = config.attention_factor
            said["rope_scaling"] = {"short_mscale": factor, "long_mscale": factor, **said["rope_scaling"]}
        return said


KEYS = (
    *DECODER, KV_HEADS, HF_HEAD_DIM, INTERMEDIATE, RMS_EPS_5, frequency_base(1e6), TwoFactorScaling(),
    WHOLE_ROTARY, ROTARY_PAIRS, Windows(always=True), act("silu"), *LONGROPE,
    Key("experts", "num_local_experts", "expert_count", 16, COUNT),
    Key("experts_used", "num_experts_per_tok", "expert_used_count", 2, Integer(2, 2)),
    Fixed("jitter", "router_jitter_noise", 0.01, NOT_NEGATIVE),
)  # fmt: skip
WEIGHTS = (
    *LONGROPE_FACTORS, *EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *BLOCK_SPARSE, *NORM, *HEAD,
)  # fmt: skip


def sparse_mixer(net: Decoder, scores: Value) -> tuple[Value, Value]:
    """Weights and experts [tokens, 2] for router logits [tokens, experts].

    The weight of an expert is its probability among the experts whose logits are within ``2 * jitter`` of its own,
    relative to the larger of the two; the second expert is chosen without the first.
    """
    config = net.config
    best, ids = top(net, scores, 2)
    (first, second), (chosen, _) = net.split(best, [1, 1]), net.split(ids, [1, 1])
    others = net.Where(net.Equal(net.constant(range(config.experts), "int64"), chosen), float("-inf"), scores)

    def probability(logit: Value, candidates: Value) -> Value:
        distance = net.Div(net.Sub(logit, scores), net.Max(net.Abs(scores), logit))
        near = net.Where(net.Greater(distance, 2 * config.jitter), float("-inf"), candidates)
        y: Value = net.ReduceMax(net.Softmax(near, axis=-1), [1])
        return y

    weights = net.Concat(probability(first, scores), probability(second, others), axis=1)
    return weights, ids


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a mixture of gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)

    def route(logits: Value) -> tuple[Value, Value]:
        return sparse_mixer(net, logits)

    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        h = bias_norm(net, x, f"layers.{i}.mlp_norm")
        x = net.Add(x, gated_experts(net, h, f"layers.{i}.mlp", route, hidden=config.hidden, act=config.act))
    net.end(x, bias_norm)


def _norms_and_experts(config: Config, names: Collection[str]) -> str:
    """Deviation of every model."""
    return "computes RMS norms in place of layer norms, and makes the weights of experts sum to one"


ARCHITECTURES = (
    Architecture(
        "phimoe",
        "Phi 3.5 MoE",
        ("phimoe",),
        ("phimoe",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle_longrope,
        gguf_required={**OWN_HEAD, **OUTPUT_BIAS, "head.bias": None},
        deviations=(ignored_windows, _norms_and_experts),
        defaults={"phimoe": {"num_key_value_heads": 8, "max_position_embeddings": 131072}},
    ),
)
