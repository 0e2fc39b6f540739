"""LFM2 (Liquid AI 2025, arXiv:2511.23404): gated short convolutions, and attention in a few layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, SIZE, Listed, checked, flag, word
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import gated
from ..layers.norm import norm
from ..layers.recurrent.recurrence import short_conv, token_mask
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import EMBED, HEAD
from ..schema.gguf.deviations import Unread
from ..schema.hyperparameters import DECODER, HF_HEAD_DIM, TOKENS, frequency_base, matrix
from ..schema.layer_kinds import AttentionLayers, HybridKVHeads, attends, recurs
from ..schema.weight_layout import Reshaped


def _full_layers(source: Mapping[str, Any], config: Config) -> list[int]:
    """Attention layers by index, all by default."""
    key = "full_attn_idxs"
    indices: list[int] = checked(key, source.get(key) or list(range(config.layers)), Listed(SIZE, 1, config.layers))
    return indices


@dataclass(frozen=True)
class FeedForward:
    """Hyper-parameter: width of the feed-forward networks, which config.json may give as the values it is derived
    from."""

    name: str = "intermediate"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names != HF:
            return int(checked("feed_forward_length", source["feed_forward_length"], COUNT))
        key = "block_ff_dim" if "block_ff_dim" in source else "intermediate_size"
        width: int = checked(key, source[key], COUNT)
        if not checked("block_auto_adjust_ff_dim", source.get("block_auto_adjust_ff_dim", True), flag):
            return width
        width = int(2 * width / 3)
        factor = source.get("block_ffn_dim_multiplier", 1.0)
        multiple: int = checked("block_multiple_of", source.get("block_multiple_of", 256), COUNT)
        if factor is None:
            return width
        return -(-int(checked("block_ffn_dim_multiplier", factor, POSITIVE) * width) // multiple) * multiple

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {"feed_forward_length": config.intermediate}
        return {
            "intermediate_size": config.intermediate,
            "block_ff_dim": config.intermediate,
            "block_auto_adjust_ff_dim": False,
        }


KEYS = (
    *DECODER, AttentionLayers("conv", default=_full_layers), HybridKVHeads(), FeedForward(), Scaling(),
    HF_HEAD_DIM,
    Key("eps", "norm_eps", "attention.layer_norm_rms_epsilon", 1e-5, NOT_NEGATIVE),
    frequency_base(1e6),
    Key("taps", "conv_L_cache", "shortconv.l_cache", 3, COUNT),
    TOKENS,
    Key("act", (), (), "silu", word),
)  # fmt: skip


LAYER = "model.layers.{i}."
FLAT = Reshaped(("hidden", 1, "taps"), ("hidden", "taps"))
WEIGHTS = (
    *EMBED,
    *matrix("layers.{i}.norm", f"{LAYER}operator_norm", "blk.{i}.attn_norm", shape=("hidden",)),
    *matrix(
        "layers.{i}.conv.in",
        f"{LAYER}conv.in_proj",
        "blk.{i}.shortconv.in_proj",
        shape=("3*hidden", "hidden"),
        when=recurs,
    ),
    Weight(
        "layers.{i}.conv.weight",
        f"{LAYER}conv.conv.weight",
        Stored(("blk.{i}.shortconv.conv.weight",), FLAT),
        shape=("hidden", 1, "taps"),
        when=recurs,
    ),
    Weight(
        "layers.{i}.conv.bias",
        f"{LAYER}conv.conv.bias",
        "blk.{i}.shortconv.conv.bias",
        shape=("hidden",),
        when=recurs,
        optional=True,
    ),
    *matrix(
        "layers.{i}.conv.out",
        f"{LAYER}conv.out_proj",
        "blk.{i}.shortconv.out_proj",
        shape=("hidden", "hidden"),
        when=recurs,
    ),
    *matrix(
        "layers.{i}.attn.q",
        f"{LAYER}self_attn.q_proj",
        "blk.{i}.attn_q",
        shape=("heads*head_dim", "hidden"),
        when=attends,
    ),
    *matrix(
        "layers.{i}.attn.k",
        f"{LAYER}self_attn.k_proj",
        "blk.{i}.attn_k",
        shape=("kv_heads*head_dim", "hidden"),
        when=attends,
    ),
    *matrix(
        "layers.{i}.attn.v",
        f"{LAYER}self_attn.v_proj",
        "blk.{i}.attn_v",
        shape=("kv_heads*head_dim", "hidden"),
        when=attends,
    ),
    *matrix(
        "layers.{i}.attn.o",
        f"{LAYER}self_attn.out_proj",
        "blk.{i}.attn_output",
        shape=("hidden", "heads*head_dim"),
        when=attends,
    ),
    *matrix(
        "layers.{i}.attn.q_norm",
        f"{LAYER}self_attn.q_layernorm",
        "blk.{i}.attn_q_norm",
        shape=("head_dim",),
        when=attends,
    ),
    *matrix(
        "layers.{i}.attn.k_norm",
        f"{LAYER}self_attn.k_layernorm",
        "blk.{i}.attn_k_norm",
        shape=("head_dim",),
        when=attends,
    ),
    *matrix("layers.{i}.mlp_norm", f"{LAYER}ffn_norm", "blk.{i}.ffn_norm", shape=("hidden",)),
    *matrix("layers.{i}.mlp.gate", f"{LAYER}feed_forward.w1", "blk.{i}.ffn_gate", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.up", f"{LAYER}feed_forward.w3", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", f"{LAYER}feed_forward.w2", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "model.embedding_norm", "token_embd_norm", shape=("hidden",)),
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: a short convolution or attention, then a gated feed-forward network."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        y = norm(net, x, f"layers.{i}.norm")
        x = net.Add(x, self_attention(net, y, i, rotary) if attends(config, i) else convolution(net, y, i))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


def convolution(net: Decoder, x: Value, i: int) -> Value:
    """Short convolution between an input gate and an output gate."""
    config, name = net.config, f"layers.{i}.conv"
    before, after, x = net.split(linear(net, net.Mul(x, token_mask(net)), f"{name}.in"), [config.hidden] * 3)
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y = short_conv(net, net.Mul(before, x), net.vector(f"{name}.weight"), bias, f"conv.{i}", config.hidden, config.taps)
    return linear(net, net.Mul(after, y), f"{name}.out")


ARCHITECTURES = (
    Architecture(
        "lfm2",
        "LFM2",
        ("lfm2",),
        ("lfm2",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        tied=True,
        deviations=(Unread(r"\.shortconv\.\w+\.bias$"),),
        defaults={"lfm2": {"num_key_value_heads": 8, "max_position_embeddings": 128000, "pad_token_id": 0}},
    ),
)
