"""Jamba (AI21 2024, arXiv:2403.19887): Mamba layers, attention without positions in a few layers, and mixtures of
experts in every other layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, lacks_weights
from ...runtime.contract.hyperparameter import COUNT, SIZE
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import gated_experts, softmax_router
from ..layers.norm import norm
from ..layers.recurrent.mamba import Rank, selective_mixer, selective_weights
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, attention
from ..schema.gguf.deviations import RECURRENT_BIAS, Unread, fixed_inner_size
from ..schema.gguf.required import CONVOLUTION_BIAS
from ..schema.hyperparameters import DECODER, EXPERTS_USED, HF_HEAD_DIM, INTERMEDIATE, RMS_EPS, act, experts, matrix
from ..schema.layer_kinds import AttentionLayers, Every, HybridKVHeads, attends, recurs

EXPERT_LAYERS = Every("expert_layer_offset", "expert_layer_period", 1, 2)


@dataclass(frozen=True)
class SparseLayers:
    """Hyper-parameter: indices of the layers with a mixture of experts; None for GGUF files until the weights are
    known."""

    name: str = "sparse"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int] | None:
        if names != HF:
            return None
        return EXPERT_LAYERS(source, config) if config.experts > 1 else []

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return EXPERT_LAYERS.keys(config.sparse, config.layers) if names == HF else {}


KEYS = (
    *DECODER, AttentionLayers(every=Every("attn_layer_offset", "attn_layer_period", 4, 8)), HybridKVHeads(),
    HF_HEAD_DIM, INTERMEDIATE, RMS_EPS, act("silu"),
    Key("experts", ("num_experts", "num_local_experts"), "expert_count", 16, SIZE),
    Key("experts_used", EXPERTS_USED.hf, EXPERTS_USED.gguf, 2, COUNT, at_most=("experts",)), SparseLayers(),
    Key("taps", "mamba_d_conv", "ssm.conv_kernel", 4, COUNT), Key("expand", "mamba_expand", (), None, COUNT),
    Key("inner", (), "ssm.inner_size", lambda config: (config.expand or 2) * config.hidden, COUNT),
    Key("expand", "mamba_expand", (), lambda config: config.inner // config.hidden, COUNT),
    Key("state", "mamba_d_state", "ssm.state_size", 16, COUNT), Rank("mamba_dt_rank"),
    Key("steps", (), (), lambda config: config.rank + 2 * config.state),
    Key("normed", (), (), True, bool), Key("inner_eps", (), (), lambda config: config.eps, float),
)  # fmt: skip


def sparse(config: Config, i: int) -> bool:
    """Whether layer `i` can be a mixture of experts."""
    return config.sparse is None or i in config.sparse


def dense(config: Config, i: int) -> bool:
    """Whether layer `i` can have a dense network."""
    return config.sparse is None or i not in config.sparse


def settle(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Find the mixtures of experts. FormatError for a layer with parts of a network only."""
    config.values["sparse"] = [i for i in range(config.layers) if f"layers.{i}.mlp.router.weight" in weights]
    for i in range(config.layers):
        parts = ("router", *(f"experts.{part}" for part in PARTS)) if i in config.sparse else PARTS
        missing = [part for part in parts if f"layers.{i}.mlp.{part}.weight" not in weights]
        if missing:
            why = f"layer {i} of a jamba model lacks the matrices {', '.join(missing)} of its feed-forward network"
            raise lacks_weights(config.path, why)


PARTS = ("gate", "up", "down")
LAYER, GGUF, OURS = "model.layers.{i}.", "blk.{i}.", "layers.{i}.mlp."
MIXER = f"{LAYER}mamba."
SHAPES = {part: ("hidden", "intermediate") if part == "down" else ("intermediate", "hidden") for part in PARTS}
NETWORKS = tuple(
    row
    for part in PARTS
    for row in (
        *matrix(f"{OURS}{part}", f"{LAYER}feed_forward.{part}_proj", f"{GGUF}ffn_{part}", shape=SHAPES[part],
                optional=True, when=dense),
        experts(f"{OURS}experts.{part}", f"{LAYER}feed_forward.experts.{{e}}.{part}_proj", f"{GGUF}ffn_{part}_exps",
                shape=("experts", *SHAPES[part]), optional=True, when=sparse),
    )
)  # fmt: skip
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *selective_weights(MIXER, recurs),
    *matrix("layers.{i}.dt_norm", f"{MIXER}dt_layernorm", f"{GGUF}ssm_dt_norm", shape=("rank",), when=recurs),
    *matrix("layers.{i}.b_norm", f"{MIXER}b_layernorm", f"{GGUF}ssm_b_norm", shape=("state",), when=recurs),
    *matrix("layers.{i}.c_norm", f"{MIXER}c_layernorm", f"{GGUF}ssm_c_norm", shape=("state",), when=recurs),
    *attention(when=attends),
    *matrix("layers.{i}.mlp_norm", f"{LAYER}pre_ff_layernorm", f"{GGUF}ffn_norm", shape=("hidden",)),
    *matrix(f"{OURS}router", f"{LAYER}feed_forward.router", f"{GGUF}ffn_gate_inp", shape=("experts", "hidden"),
            optional=True, when=sparse),
    *NETWORKS,
    *matrix("norm", "model.final_layernorm", "output_norm", shape=("hidden",)),
    *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: a Mamba mixer or attention, then a gated network or a mixture of them."""
    config = net.config

    def route(logits: Value) -> tuple[Value, Value]:
        return softmax_router(net, logits, config.experts_used, normalize=False)

    x = net.begin()
    for i in range(config.layers):
        y, name = norm(net, x, f"layers.{i}.attn_norm"), f"layers.{i}.mlp"
        x = net.Add(x, self_attention(net, y, i, None) if attends(config, i) else selective_mixer(net, y, i))
        h = norm(net, x, f"{name}_norm")
        mixed = i in config.sparse
        x = net.Add(
            x,
            gated_experts(net, h, name, route, hidden=config.hidden, act=config.act)
            if mixed
            else gated(net, h, name, config.act),
        )
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "jamba",
        "Jamba",
        ("jamba",),
        ("jamba",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        settle=settle,
        gguf_required=CONVOLUTION_BIAS,
        deviations=(Unread(RECURRENT_BIAS), fixed_inner_size),
        defaults={"jamba": {"num_key_value_heads": 8, "pad_token_id": 0, "max_position_embeddings": 262144}},
    ),
)
