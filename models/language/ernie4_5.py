"""ERNIE 4.5 (Baidu 2025) and Helium (Kyutai 2025): Llamas whose rotary pairs are neighbouring elements."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import NOT_NEGATIVE
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import BIAS, Unread
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, RMS_EPS_5, TOKENS, WHOLE_ROTARY, act, frequency_base

KEYS = (*DECODER, *HEADS, INTERMEDIATE, Scaling(), act("silu"), WHOLE_ROTARY, TOKENS)
ERNIE_KEYS = (*KEYS, RMS_EPS_5, frequency_base(5e5))
HELIUM_KEYS = (*KEYS, Key("eps", "rms_norm_eps", (), 1e-8, NOT_NEGATIVE), frequency_base(1e5))
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context, interleaved=True)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "ernie4_5",
        "ERNIE 4.5",
        ("ernie4_5",),
        ("ernie4_5",),
        ERNIE_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        deviations=(Unread(BIAS),),
        defaults={
            "ernie4_5": {
                "num_key_value_heads": 2,
                "max_position_embeddings": 131072,
                "pad_token_id": 0,
                "head_dim": 128,
            }
        },
    ),
    Architecture(
        "helium",
        "Helium",
        ("helium",),
        (),
        HELIUM_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        defaults={"helium": {"head_dim": 128, "max_position_embeddings": 4096, "pad_token_id": 3}},
    ),
)
