"""GLM-4.5, 4.6 and 4.5 Air (arXiv:2508.06471): rotary embedding of half of each head; leading dense layers, then
mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key
from ...runtime.contract.hyperparameter import Integer, checked, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.deepseek_moe import MIXTURE, Gating, feed_forward, mixture_keys
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, NORM, attention
from ..schema.hyperparameters import (
    DECODER,
    HEADS,
    INTERMEDIATE,
    LAYERS,
    RMS_EPS_5,
    ROTARY,
    THETA,
    act,
    matrix,
    partial,
)


@dataclass(frozen=True)
class Layers:
    """Hyper-parameter: layers that compute logits. GGUF files also count multi-token-prediction layers."""

    name: str = "layers"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names == HF:
            return int(checked("num_hidden_layers", source["num_hidden_layers"], LAYERS))
        further: int = checked("nextn_predict_layers", source.get("nextn_predict_layers") or 0, Integer(0, LAYERS.high))
        return int(checked("block_count", source["block_count"], Integer(further + 1, LAYERS.high + further))) - further

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"num_hidden_layers": config.layers, "num_nextn_predict_layers": 0}
        return {"block_count": config.layers, "nextn_predict_layers": 0}


KEYS = (
    *(row for row in DECODER if row.name != "layers"), Layers(), *HEADS,
    INTERMEDIATE, RMS_EPS_5, THETA, Scaling(), act("silu"), partial(0.5), ROTARY,
    Gating("sigmoid", said=False), *mixture_keys(True), Key("normed", "use_qk_norm", (), False, flag),
)  # fmt: skip


def _normed(config: Config, i: int) -> bool:
    return bool(config.normed) or config.names != HF


WEIGHTS = (
    *EMBED, *ATTN_NORM, *attention(),
    *matrix("layers.{i}.attn.q_norm", "model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm", shape=("head_dim",),
            when=_normed, optional=True),
    *matrix("layers.{i}.attn.k_norm", "model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm", shape=("head_dim",),
            when=_normed, optional=True),
    *matrix("layers.{i}.mlp_norm", "model.layers.{i}.post_attention_layernorm", "blk.{i}.post_attention_norm",
            shape=("hidden",)),
    *MIXTURE, *NORM, *HEAD,
)  # fmt: skip


def settle(config: Config, weights: Mapping[str, Any]) -> None:
    """Detect from the weights whether queries and keys are normalized; GGUF keys do not record it."""
    config.values["normed"] = "layers.0.attn.q_norm.weight" in weights


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated network or a mixture of experts."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, feed_forward(net, norm(net, x, f"layers.{i}.mlp_norm"), i))
    net.end(x, norm)


IGNORED = (*Architecture.ignored, r"layers\.{layers}\.", r"^blk\.{layers}\.")
ARCHITECTURES = (
    Architecture(
        "glm4_moe",
        "GLM-4.5",
        ("glm4_moe",),
        ("glm4moe",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        ignored=IGNORED,
        defaults={
            "glm4_moe": {
                "num_experts_per_tok": 8,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "first_k_dense_replace": 1,
                "moe_intermediate_size": 1408,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
            }
        },
    ),
)
