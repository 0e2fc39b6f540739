"""Llama and models of its architecture: Llama 1 to 3.2, SOLAR, CodeLlama, Yi, Mistral, Mistral Nemo, SmolLM2 (Touvron
et al. 2023, arXiv:2302.13971)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import LLAMA3_FACTORS, Rotary, Scaling, settle_llama3
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import ignored_windows
from ..schema.hyperparameters import (
    CAUSAL,
    DECODER,
    HEADS,
    INTERMEDIATE,
    RMS_EPS,
    ROTARY_PAIRS,
    THETA,
    TOKENS,
    WHOLE_ROTARY,
    Windows,
    act,
)

if TYPE_CHECKING:
    from ..layers.decoder import Norm


PADDLEOCR = "paddleocr_vl_text"
"""The text part of PaddleOCR-VL."""
WITHOUT_WINDOWS = ("llama", PADDLEOCR)


@dataclass(frozen=True)
class MistralWindows(Windows):
    """Hyper-parameter: attention windows of Mistral; models of the types `WITHOUT_WINDOWS` have none, whatever their
    config.json states."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int | None]:
        if names == HF and source.get("model_type") in WITHOUT_WINDOWS:
            return [None] * config.layers
        return super().read(names, source, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF and not any(config.windows):
            return {}
        said = super().write(names, config)
        return {**said, "model_type": "mistral"} if names == HF else said


KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), MistralWindows(usual=4096), act("silu"),
    WHOLE_ROTARY, ROTARY_PAIRS, TOKENS, CAUSAL,
)  # fmt: skip


WEIGHTS = (
    LLAMA3_FACTORS, *EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *GATED, *NORM, *HEAD,
)  # fmt: skip


UNPAIRED = (
    LLAMA3_FACTORS, *EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM, *HEAD,
)  # fmt: skip
"""Weights whose queries and keys rotate halves in GGUF files, too."""


def build(net: Decoder, last: Norm = norm) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network; `last` changes the hidden
    states after them."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context, factors="rope.factors")
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, last)


NESTED_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "sliding_window": 4096,
    },
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "max_position_embeddings": 131072},
    PADDLEOCR: {
        "vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    },
}  # fmt: skip
ARCHITECTURES = (
    Architecture("llama", "Llama, Mistral", ("llama", "mistral"), ("llama",), KEYS, WEIGHTS,
                 decoder_tasks(build),
                 accepts=lambda source: not source.get("llama.expert_count"), settle=settle_llama3,
                 deviations=(ignored_windows,), nested_defaults=NESTED_DEFAULTS,
                 defaults=DEFAULTS),
    Architecture("paddleocr_text", "PaddleOCR-VL's language model", ("paddleocr_vl_text",), ("paddleocr",), KEYS,
                 UNPAIRED, decoder_tasks(build), settle=settle_llama3, tied=True, defaults=DEFAULTS),
)  # fmt: skip
