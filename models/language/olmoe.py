"""OLMoE (Muennighoff et al. 2024, arXiv:2409.02060): mixtures of many small experts; queries and keys are normalized
over all heads at once."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import attend, projected
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.moe import gated_experts, softmax_router
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, WHOLE_QK_NORM, attention, mixture
from ..schema.gguf.deviations import BIAS, Unread, separate_heads
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    RMS_EPS_5,
    THETA,
    Fixed,
    act,
)

KEYS = (
    *DECODER, KV_HEADS, HF_HEAD_DIM, INTERMEDIATE, RMS_EPS_5, THETA, Scaling(), act("silu"),
    Key("experts", ("num_experts", "num_local_experts"), "expert_count", 64, COUNT), EXPERTS_USED,
    Fixed("normalize", "norm_topk_prob", False, flag), Fixed("clip", "clip_qkv", None, POSITIVE),
)  # fmt: skip
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(),
    *WHOLE_QK_NORM,
    *MLP_NORM,
    *mixture("model.layers.{i}.mlp.gate", "model.layers.{i}.mlp.experts.{e}"),
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a mixture of gated feed-forward networks."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)

    def route(logits: Value) -> tuple[Value, Value]:
        return softmax_router(net, logits, config.experts_used, normalize=config.normalize)

    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, _attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        h = norm(net, x, f"layers.{i}.mlp_norm")
        x = net.Add(x, gated_experts(net, h, f"layers.{i}.mlp", route, hidden=config.hidden, act=config.act))
    net.end(x, norm)


def _attention(net: Decoder, x: Value, i: int, rotary: Rotary) -> Value:
    """Attention whose queries and keys are normalized, and with the values clipped, before they are rotated."""
    config, name = net.config, f"layers.{i}.attn"
    q, k, v = projected(net, x, name)
    q, k = norm(net, q, f"{name}.q_norm"), norm(net, k, f"{name}.k_norm")
    if config.clip:
        q, k, v = (net.Clip(y, -config.clip, config.clip) for y in (q, k, v))
    q, k = rotary.rotate(net, q, config.heads, net.positions), rotary.rotate(net, k, config.kv_heads, net.positions)
    return linear(net, attend(net, q, k, v, i), f"{name}.o")


ARCHITECTURES = (
    Architecture(
        "olmoe",
        "OLMoE",
        ("olmoe",),
        ("olmoe",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required=OWN_HEAD,
        deviations=(Unread(BIAS), separate_heads),
        defaults={"olmoe": {"max_position_embeddings": 4096, "pad_token_id": 1}},
    ),
)
