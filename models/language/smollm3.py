"""SmolLM3: a Llama without rotary embedding in every fourth layer (NoPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import BIAS, Unread, ignored_windows
from ..schema.hyperparameters import (
    DECODER,
    HEAD_DIM,
    INTERMEDIATE,
    RMS_EPS,
    TOKENS,
    VALUE_DIM,
    WHOLE_ROTARY,
    Windows,
    act,
    frequency_base,
    kv_heads_key,
)
from ..schema.layer_kinds import UsesRope


@dataclass(frozen=True)
class NopeWindows(Windows):
    """Hyper-parameter: attention windows, which layers without rotary embedding have if ``use_sliding_window`` says
    so."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        if names == HF and not source.get("use_sliding_window"):
            return [None] * config.layers
        return super().read(names, source, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = super().write(names, config)
        if names != HF or not any(config.windows):
            return said
        kinds = ["sliding_attention" if window else "full_attention" for window in config.windows]
        return {**said, "use_sliding_window": True, "layer_types": kinds}


KEYS = (
    *DECODER, kv_heads_key(default=4), HEAD_DIM, VALUE_DIM, INTERMEDIATE, RMS_EPS,
    frequency_base(2e6), Scaling(),
    UsesRope(), NopeWindows(lambda config, i: not config.uses_rope[i]), act("silu"),
    WHOLE_ROTARY, TOKENS,
)  # fmt: skip
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention, mostly with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, (window, uses_rope) in enumerate(zip(config.windows, config.uses_rope, strict=True)):
        h = norm(net, x, f"layers.{i}.attn_norm")
        x = net.Add(x, self_attention(net, h, i, rotary if uses_rope else None, window=window))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "smollm3",
        "SmolLM3",
        ("smollm3",),
        ("smollm3",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        deviations=(Unread(BIAS), ignored_windows),
        defaults={"smollm3": {"max_position_embeddings": 32768, "pad_token_id": 128004}},
    ),
)
