"""SmolLM3: a Llama that leaves out the rotary embedding in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.arch import HF, Architecture, Config, Key
from ..runtime.record import dataclass
from .layers.attention import self_attention
from .layers.decoder import Decoder
from .layers.mlp import gated
from .layers.norm import norm
from .layers.numbers import positive
from .layers.parts import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from .layers.rope import Rotary, Scaling
from .layers.rows import DECODER, HEAD_DIM, INTERMEDIATE, RMS_EPS, VALUE_DIM, Windows, act

EVERY = 4


@dataclass(frozen=True)
class Turned:
    """Row of whether each layer has a rotary embedding; every fourth has none, which is all that GGUF files can say."""

    name: str = "turned"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[bool]:
        said = source.get("no_rope_layers") if names == HF else None
        every = (source.get("no_rope_layer_interval") if names == HF else None) or EVERY
        return [bool(each) for each in said] if said else [(i + 1) % every != 0 for i in range(config.layers)]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"no_rope_layers": [int(each) for each in config.turned]} if names == HF else {}


KEYS = (
    *DECODER, Key("kv_heads", "num_key_value_heads", "attention.head_count_kv", 4), HEAD_DIM, VALUE_DIM, INTERMEDIATE, RMS_EPS,
    Key("theta", ("rope_theta", "rope_parameters.rope_theta"), "rope.freq_base", 2e6, positive), Scaling(), Windows(), act("silu"), Turned(),
    Key("rotary", (), "rope.dimension_count", lambda config: config.head_dim),
    Key("tokens", (), "vocab_size", lambda config: config.vocab),
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
