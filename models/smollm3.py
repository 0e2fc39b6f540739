"""SmolLM3: a Llama that leaves out the rotary embedding in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.arch import HF, Architecture, Config, Key
from ..runtime.parameter import COUNT, Listed, checked, flag
from ..runtime.record import dataclass
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mlp import gated
from .layers.norm import norm
from .layers.parts import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from .layers.rope import FREQUENCY_BASE, Rotary, Scaling
from .layers.rows import DECODER, HEAD_DIM, INTERMEDIATE, RMS_EPS, TOKENS, VALUE_DIM, WHOLE_ROTARY, Windows, act, key_heads

EVERY = 4


@dataclass(frozen=True)
class Turned:
    """Row of whether each layer has a rotary embedding; every fourth has none, which is all that GGUF files can say."""

    name: str = "turned"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[bool]:
        said, every = (source.get(key) if names == HF else None for key in ("no_rope_layers", "no_rope_layer_interval"))
        if said:
            turned: list[bool] = checked("no_rope_layers", said, Listed(flag, config.layers))
            return turned[: config.layers]
        interval = checked("no_rope_layer_interval", every or EVERY, COUNT)
        return [(i + 1) % interval != 0 for i in range(config.layers)]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"no_rope_layers": [int(each) for each in config.turned]} if names == HF else {}


KEYS = (
    *DECODER, key_heads(default=4), HEAD_DIM, VALUE_DIM, INTERMEDIATE, RMS_EPS,
    Key("theta", ("rope_theta", "rope_parameters.rope_theta"), "rope.freq_base", 2e6, FREQUENCY_BASE), Scaling(),
    Windows(), act("silu"), Turned(),
    WHOLE_ROTARY, TOKENS,
)  # fmt: skip
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers of attention, most of them with rotary embedding, and gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, (window, turned) in enumerate(zip(config.windows, config.turned, strict=True)):
        h = norm(net, x, f"layers.{i}.attn_norm")
        x = net.Add(x, self_attention(net, h, i, rotary if turned else None, window=window))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (Architecture("smollm3", "SmolLM3", ("smollm3",), ("smollm3",), KEYS, WEIGHTS, build),)
