"""Mixtral (Jiang et al. 2024, arXiv:2401.04088): a Mistral with mixtures of experts."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.moe import gated_experts, softmax_router
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, BLOCK_SPARSE, EMBED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import ignored_windows
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    TOKENS,
    WHOLE_ROTARY,
    Windows,
    act,
    frequency_base,
)

KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, Scaling(), Windows(), act("silu"),
    RMS_EPS_5,
    frequency_base(1e6),
    Key("experts", "num_local_experts", "expert_count", kind=COUNT), EXPERTS_USED,
    WHOLE_ROTARY, TOKENS,
)  # fmt: skip
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *BLOCK_SPARSE, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a mixture of gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()

    def route(logits: Value) -> tuple[Value, Value]:
        return softmax_router(net, logits, config.experts_used, normalize=True)

    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        h = norm(net, x, f"layers.{i}.mlp_norm")
        x = net.Add(x, gated_experts(net, h, f"layers.{i}.mlp", route, hidden=config.hidden, act=config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "mixtral",
        "Mixtral",
        ("mixtral",),
        ("llama",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        accepts=lambda source: source.get("model_type") == "mixtral" or bool(source.get("llama.expert_count")),
        deviations=(ignored_windows,),
        defaults={"mixtral": {"num_key_value_heads": 8, "max_position_embeddings": 131072}},
    ),
)
