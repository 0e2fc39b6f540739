"""Qwen 1.5, 2 and 3 mixtures of experts: Qwen's attention; Qwen 1.5 and 2 add a shared expert."""

from __future__ import annotations

from ...runtime.contract.architecture import HF, Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import softmax_mixture
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, QK_NORM, attention
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread, ignored_windows
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HEAD_DIM,
    HF_HEAD_DIM,
    KV_HEADS,
    LAYERS,
    RMS_EPS,
    THETA,
    VALUE_DIM,
    SwitchedWindows,
    act,
)
from ..schema.qwen_mixture import MIXTURE, SHARED, sparse

KEYS = (
    *DECODER, KV_HEADS, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("intermediate", "intermediate_size", "feed_forward_length", 0),
    Key("experts", ("num_experts", "num_local_experts"), "expert_count"),
    EXPERTS_USED,
    Key("expert_intermediate", "moe_intermediate_size", "expert_feed_forward_length", kind=COUNT),
    Key("sparse_step", "decoder_sparse_step", (), 1, COUNT),
    Key("dense_layers", "mlp_only_layers", (), [], Listed(SIZE, most=LAYERS.high)),
)  # fmt: skip
QWEN2_KEYS = (
    *KEYS, HF_HEAD_DIM,
    Key("sliding_layers", "max_window_layers", (), lambda config: 28 if config.names == HF else 0),
    SwitchedWindows(lambda config, i: i % 2 == 0 and i < config.sliding_layers),
    Key("shared_intermediate", "shared_expert_intermediate_size", "expert_shared_feed_forward_length", kind=COUNT),
    Key("normalize", "norm_topk_prob", (), False, flag),
)  # fmt: skip
QWEN3_KEYS = (
    *KEYS,
    SwitchedWindows(),
    HEAD_DIM,
    VALUE_DIM,
    Key("normalize", "norm_topk_prob", (), lambda config: config.names == "gguf", flag),
)


WEIGHTS = (*EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *MIXTURE, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a mixture of gated networks, with a shared expert in Qwen
    1.5 and 2."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window=window))
        h = norm(net, x, f"layers.{i}.mlp_norm")
        x = net.Add(
            x,
            softmax_mixture(net, h, f"layers.{i}.mlp")
            if sparse(config, i)
            else gated(net, h, f"layers.{i}.mlp", config.act),
        )
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "qwen2_moe",
        "Qwen 1.5 and 2 with experts",
        ("qwen2_moe",),
        ("qwen2moe",),
        QWEN2_KEYS,
        (*WEIGHTS, *SHARED),
        decoder_tasks(build),
        gguf_required=OWN_HEAD,
        defaults={"qwen2_moe": {"intermediate_size": 5632, "max_position_embeddings": 32768}},
    ),
    Architecture(
        "qwen3_moe",
        "Qwen 3 with experts",
        ("qwen3_moe",),
        ("qwen3moe",),
        QWEN3_KEYS,
        (*WEIGHTS, *QK_NORM),
        decoder_tasks(build),
        deviations=(Unread(PROJECTION_BIAS), ignored_windows),
        defaults={"qwen3_moe": {"intermediate_size": 6144, "num_key_value_heads": 4, "max_position_embeddings": 32768}},
    ),
)
