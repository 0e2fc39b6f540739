"""GLM-4.5, 4.6 and 4.5 Air (arXiv:2508.06471): half of each head is turned, mixtures of experts behind some dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.arch import HF, Architecture, Config, Key
from ..runtime.parameter import Integer, checked, flag
from ..runtime.record import dataclass
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mixture import MIXTURE, Gating, mixed, mixture_keys
from .layers.norm import norm
from .layers.parts import ATTN_NORM, EMBED, HEAD, NORM, attention
from .layers.rope import Rotary, Scaling
from .layers.rows import DECODER, HEAD_DIM, INTERMEDIATE, KV_HEADS, LAYERS, RMS_EPS_5, ROTARY, THETA, VALUE_DIM, act, matrix, partial


@dataclass(frozen=True)
class Blocks:
    """Row of the layers that make logits; GGUF files count those that guess further tokens with them."""

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
    *(row for row in DECODER if row.name != "layers"), Blocks(), KV_HEADS, HEAD_DIM, VALUE_DIM,
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
    """See whether queries and keys are normed, which GGUF files do not say."""
    config.values["normed"] = "layers.0.attn.q_norm.weight" in weights


def build(net: Decoder) -> None:
    """Pre-norm layers of attention with rotary embedding, and gated networks or mixtures of them."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, mixed(net, norm(net, x, f"layers.{i}.mlp_norm"), i))
    net.end(x, norm)


IGNORED = (*Architecture.ignored, r"layers\.{layers}\.", r"^blk\.{layers}\.")
ARCHITECTURES = (
    Architecture("glm4_moe", "GLM-4.5", ("glm4_moe",), ("glm4moe",), KEYS, WEIGHTS, build, settle=settle, ignored=IGNORED),
)
