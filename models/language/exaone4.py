"""EXAONE 4 (LG AI Research 2025, arXiv:2507.11407): norms after each block; where layers have sliding windows, the
others have full attention without rotary embedding."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config
from ...runtime.contract.hyperparameter import SIZE, ParameterError, checked, shown
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import LLAMA3_FACTORS, Rotary, Scaling, settle_llama3
from ..schema.decoder_weights import AFTER_ATTN, AFTER_MLP, EMBED, GATED, HEAD, NORM, QK_NORM, attention
from ..schema.hyperparameters import (
    DECODER,
    HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    ROTARY_PAIRS,
    THETA,
    TOKENS,
    WHOLE_ROTARY,
    Windows,
    act,
    sliding_layers,
)


@dataclass(frozen=True)
class Pattern:
    """Hyper-parameter: kinds of layers in turn, L for a sliding window and G for full attention; a number n means n - 1
    of the first kind, then one of the other, 0 windows in no layer. Files that list every layer do not need it."""

    name: str = "pattern"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        key = "sliding_window_pattern"
        said = source.get(key, 4) if names == HF else None
        if isinstance(said, str):
            if not said or set(said) - {"L", "G"}:
                raise ParameterError(key, f"{shown(said)} has other letters than L and G")
            return said
        every: int = checked(key, said or 0, SIZE)
        return "L" * min(every - 1, config.layers) + "G" if every else "G"

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {}


KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, RMS_EPS_5, THETA, Scaling(), act("silu"), WHOLE_ROTARY,
    ROTARY_PAIRS, TOKENS, Pattern(),
    Windows(lambda config, i: config.pattern[i % len(config.pattern)] == "L", period=4, explicit=True, usual=4096),
)  # fmt: skip
WEIGHTS = (
    LLAMA3_FACTORS, *EMBED, *attention(), *QK_NORM, *AFTER_ATTN, *GATED, *AFTER_MLP, *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Post-norm layers: attention with normalized queries and keys, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context, factors="rope.factors")
    hybrid = any(config.windows)
    x = net.begin()
    for i, window in enumerate(config.windows):
        y = self_attention(net, x, i, None if hybrid and window is None else rotary, window=window)
        x = net.Add(x, norm(net, y, f"layers.{i}.after_attn"))
        x = net.Add(x, norm(net, gated(net, x, f"layers.{i}.mlp", config.act), f"layers.{i}.after_mlp"))
    net.end(x, norm)


def _fixed_windows(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models with windows that are not built as EXAONE 4 32B."""
    slides = [window is not None for window in config.windows]
    if not any(slides) or (len(slides) == 64 and slides == sliding_layers(4, 64)):
        return None
    return "ignores sliding windows and rotates queries and keys of all layers"


ARCHITECTURES = (
    Architecture(
        "exaone4",
        "EXAONE 4",
        ("exaone4",),
        ("exaone4",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle_llama3,
        deviations=(_fixed_windows,),
    ),
)
