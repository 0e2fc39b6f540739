"""Hunyuan, dense (Tencent 2025): a Llama whose queries and keys are normalized after their rotation; a fixed factor
raises the RoPE base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config
from ...runtime.contract.hyperparameter import checked
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import attend, heads_normed, projected
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import PLAIN, Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.gguf.rope_scaling import FACTOR
from ..schema.hyperparameters import (
    DECODER,
    FREQUENCY_BASE,
    HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    THETA,
    TOKENS,
    WHOLE_ROTARY,
    act,
    matrix,
)
from ..schema.rope.stated_parameters import ALL_LAYERS, FrequencyBase


def _alpha(names: str, source: Mapping[str, Any]) -> float | None:
    """The factor of NTK-aware scaling with a fixed factor, which config.json calls dynamic; None without it."""
    path, stated = ALL_LAYERS.stated(source) if names == HF else ("", {})
    if "dynamic" in (stated.get("rope_type"), stated.get("type")) and stated.get("alpha"):
        return float(checked(f"{path}.alpha", stated["alpha"], FACTOR))
    return None


@dataclass(frozen=True)
class RaisedBase(FrequencyBase):
    """Hyper-parameter: the RoPE frequency base, times alpha to the power of ``head_dim / (head_dim - 2)``."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        base, alpha = float(super().read(names, source, config)), _alpha(names, source)
        if alpha is None:
            return base
        return float(checked(self.name, base * alpha ** (config.head_dim / (config.head_dim - 2)), FREQUENCY_BASE))


@dataclass(frozen=True)
class OtherScaling(Scaling):
    """Hyper-parameter: RoPE scaling other than that of `RaisedBase`."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        return dict(PLAIN) if _alpha(names, source) is not None else super().read(names, source, config)


KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, RMS_EPS_5, OtherScaling(),
    RaisedBase(THETA.name, THETA.hf, THETA.gguf, THETA.default, THETA.kind), act("silu"), WHOLE_ROTARY, TOKENS,
)  # fmt: skip
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(),
    *(
        row
        for part, theirs in (("q", "query"), ("k", "key"))
        for row in matrix(
            f"layers.{{i}}.attn.{part}_norm",
            f"model.layers.{{i}}.self_attn.{theirs}_layernorm",
            f"blk.{{i}}.attn_{part}_norm",
            shape=("head_dim",),
        )
    ),
    *MLP_NORM,
    *GATED,
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, _attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


def _attention(net: Decoder, x: Value, i: int, rotary: Rotary) -> Value:
    """Attention whose queries and keys are rotated, then normalized."""
    config, name = net.config, f"layers.{i}.attn"
    q, k, v = projected(net, x, name)
    q, k = (
        heads_normed(net, rotary.rotate(net, y, heads, net.positions), f"{name}.{part}_norm", heads)
        for y, part, heads in ((q, "q", config.heads), (k, "k", config.kv_heads))
    )
    return linear(net, attend(net, q, k, v, i), f"{name}.o")


ARCHITECTURES = (
    Architecture(
        "hunyuan_dense",
        "Hunyuan, dense",
        ("hunyuan_v1_dense",),
        ("hunyuan-dense",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        deviations=(Unread(PROJECTION_BIAS),),
        defaults={"hunyuan_v1_dense": {"pad_token_id": 0}},
    ),
)
