"""Ministral 3: a Mistral with YaRN and queries scaled by position beyond the original context length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config
from ...runtime.contract.hyperparameter import NOT_NEGATIVE, checked
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import ignored_windows
from ..schema.gguf.rope_scaling import LogarithmScaling
from ..schema.hyperparameters import (
    DECODER,
    HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    TOKENS,
    VALUE_DIM,
    WHOLE_ROTARY,
    Windows,
    act,
    frequency_base,
)
from ..schema.rope.stated_parameters import RopeSection

BETA = "llama_4_scaling_beta"


@dataclass(frozen=True)
class QueryBeta:
    """Hyper-parameter, read after `Scaling`: beta of the query scale 1 + beta * log(1 + position // original
    context)."""

    name: str = "query_beta"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        if names != HF:
            key = "attention.temperature_scale"
            config.scaling[BETA] = checked(key, source.get(key) or 0, NOT_NEGATIVE)
        return float(config.scaling.get(BETA) or 0)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"attention.temperature_scale": config.query_beta} if names != HF else {}


ROPE = RopeSection(
    default={
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": 16384,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        BETA: 0.1,
    }
)
KEYS = (
    *DECODER,
    KV_HEADS,
    HEAD_DIM,
    VALUE_DIM,
    INTERMEDIATE,
    RMS_EPS_5,
    frequency_base(10000.0, ROPE),
    Scaling(section=ROPE, gguf_keys=LogarithmScaling(betas=True)),
    QueryBeta(),
    Windows(),
    act("silu"),
    WHOLE_ROTARY,
    TOKENS,
)
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    original = float(config.scaling.get("original_max_position_embeddings") or config.context)

    def growing() -> Value:
        turns = net.Floor(net.Div(net.Cast(net.Unsqueeze(net.positions, [2]), to=1), original))
        return net.Add(net.Mul(net.Log(net.Add(turns, 1.0)), config.query_beta), 1.0)

    def grown(net: Decoder, y: Value, name: str, heads: int) -> Value:
        queries = name.endswith("q_norm") and config.query_beta
        return net.Mul(y, net.once("growing", growing)) if queries else y

    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(
            x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window, normed=grown)
        )
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "ministral3",
        "Ministral 3",
        ("ministral3",),
        ("mistral3",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        deviations=(ignored_windows,),
        defaults={
            "ministral3": {
                "head_dim": 128,
                "num_key_value_heads": 8,
                "max_position_embeddings": 262144,
                "pad_token_id": 11,
            }
        },
    ),
)
