"""Qwen 1.5, 2 and 3 mixtures of experts: Qwen's attention; Qwen 1.5 and 2 add a shared expert."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import gated
from ..layers.moe import gated_experts, softmax_router
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, QK_NORM, attention, mixture
from ..schema.gguf.deviations import OWN_HEAD
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
    Windows,
    act,
    matrix,
)
from ..schema.weight_layout import Flat

KEYS = (
    *DECODER, KV_HEADS, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("full_layers", "max_window_layers", (), 28),
    Windows(lambda config, i: i >= config.full_layers),
    Key("intermediate", "intermediate_size", "feed_forward_length", 0),
    Key("experts", ("num_experts", "num_local_experts"), "expert_count"),
    EXPERTS_USED,
    Key("expert_intermediate", "moe_intermediate_size", "expert_feed_forward_length", kind=COUNT),
    Key("sparse_step", "decoder_sparse_step", (), 1, COUNT),
    Key("dense_layers", "mlp_only_layers", (), [], Listed(SIZE, most=LAYERS.high)),
)  # fmt: skip
QWEN2_KEYS = (
    *KEYS, HF_HEAD_DIM,
    Key("shared_intermediate", "shared_expert_intermediate_size", "expert_shared_feed_forward_length", kind=COUNT),
    Key("normalize", "norm_topk_prob", (), False, flag),
)  # fmt: skip
QWEN3_KEYS = (
    *KEYS,
    HEAD_DIM,
    VALUE_DIM,
    Key("normalize", "norm_topk_prob", (), lambda config: config.names == "gguf", flag),
)


def sparse(config: Config, i: int) -> bool:
    """Whether layer `i` is a mixture of experts."""
    return i not in config.dense_layers and config.experts > 0 and (i + 1) % config.sparse_step == 0


def dense(config: Config, i: int) -> bool:
    """Whether layer `i` has a dense gated network."""
    return not sparse(config, i)


HF, GGUF, OURS = "model.layers.{i}.mlp.", "blk.{i}.ffn_", "layers.{i}.mlp."
MIXTURE = (
    *matrix(f"{OURS}gate", f"{HF}gate_proj", f"{GGUF}gate", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}up", f"{HF}up_proj", f"{GGUF}up", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}down", f"{HF}down_proj", f"{GGUF}down", shape=("hidden", "intermediate"), when=dense),
    *mixture(f"{HF}gate", HF + "experts.{e}", width="expert_intermediate", when=sparse),
)
SHARED = (
    *matrix(
        f"{OURS}shared.gate",
        f"{HF}shared_expert.gate_proj",
        f"{GGUF}gate_shexp",
        shape=("shared_intermediate", "hidden"),
        when=sparse,
    ),
    *matrix(
        f"{OURS}shared.up",
        f"{HF}shared_expert.up_proj",
        f"{GGUF}up_shexp",
        shape=("shared_intermediate", "hidden"),
        when=sparse,
    ),
    *matrix(
        f"{OURS}shared.down",
        f"{HF}shared_expert.down_proj",
        f"{GGUF}down_shexp",
        shape=("hidden", "shared_intermediate"),
        when=sparse,
    ),
    Weight(
        f"{OURS}shared_gate.weight",
        f"{HF}shared_expert_gate.weight",
        Stored((f"{GGUF}gate_inp_shexp.weight",), Flat()),
        shape=(1, "hidden"),
        when=sparse,
    ),
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
            x, mixed(net, h, f"layers.{i}.mlp") if sparse(config, i) else gated(net, h, f"layers.{i}.mlp", config.act)
        )
    net.end(x, norm)


def mixed(net: Decoder, x: Value, name: str) -> Value:
    """Sum of the routed experts, and of the gated shared expert if the model has one."""
    config = net.config

    def route(logits: Value) -> tuple[Value, Value]:
        return softmax_router(net, logits, config.experts_used, normalize=config.normalize)

    y = gated_experts(net, x, name, route, hidden=config.hidden, act=config.act)
    if not net.has(f"{name}.shared.up.weight"):
        return y
    everybody = net.Mul(net.Sigmoid(linear(net, x, f"{name}.shared_gate")), gated(net, x, f"{name}.shared", config.act))
    return net.Add(y, everybody)


ARCHITECTURES = (
    Architecture(
        "qwen2_moe",
        "Qwen 1.5 and 2 with experts",
        ("qwen2_moe",),
        ("qwen2moe",),
        QWEN2_KEYS,
        (*WEIGHTS, *SHARED),
        decoder_tasks(build),
        deviations=(OWN_HEAD,),
    ),
    Architecture(
        "qwen3_moe",
        "Qwen 3 with experts",
        ("qwen3_moe",),
        ("qwen3moe",),
        QWEN3_KEYS,
        (*WEIGHTS, *QK_NORM),
        decoder_tasks(build),
    ),
)
