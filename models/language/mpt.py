"""MPT (MosaicML 2023) and Replit-code 1.5: ALiBi, bias-free norms, fused queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, value_at
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, Choice, checked, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.alibi import biased, slopes
from ..layers.attention import Scores, attend
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..schema.hyperparameters import CLASSES, LAYERS, OWN_HEAD_DIM, TaskName, Vocabulary, matrix, shared_heads

ATTENTION_TYPES = {"multihead_attention": None, "grouped_query_attention": None, "multiquery_attention": 1}
"""Attention types, with the number of KV heads if the type fixes it."""


@dataclass(frozen=True)
class MPTKVHeads:
    """Hyper-parameter: KV heads."""

    name: str = "kv_heads"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names != HF:
            return shared_heads("attention.head_count_kv", source.get("attention.head_count_kv", config.heads), config)
        kind = checked(
            "attn_config.attn_type",
            value_at(source, "attn_config.attn_type") or "multihead_attention",
            Choice(tuple(ATTENTION_TYPES)),
        )
        key = "attn_config.kv_n_heads"
        return shared_heads(key, ATTENTION_TYPES[kind] or value_at(source, key) or config.heads, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if config.kv_heads == config.heads:
            return {"attn_config.attn_type": "multihead_attention"} if names == HF else {}
        if names != HF:
            return {"attention.head_count_kv": config.kv_heads}
        return {"attn_config.attn_type": "grouped_query_attention", "attn_config.kv_n_heads": config.kv_heads}


def alibi_enabled(value: Any) -> bool:
    """The ALiBi switch. ValueError if it is off."""
    if not flag(value):
        raise ValueError("only models with ALiBi are supported")
    return True


@dataclass(frozen=True)
class MaxAlibiBias(Key):
    """Hyper-parameter: largest ALiBi exponent (``alibi_bias_max``), for which transformers accepts integers only."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        value = config.alibi_bias_max
        return {self.keys(names)[0]: int(value) if names == HF and value == int(value) else value}


KEYS = (
    TaskName(), *CLASSES, Vocabulary(), Key("context", "max_seq_len", "context_length", 2048, COUNT),
    Key("hidden", "d_model", "embedding_length", kind=COUNT), Key("layers", "n_layers", "block_count", kind=LAYERS),
    Key("heads", "n_heads", "attention.head_count", kind=COUNT),
    Key("ratio", "expansion_ratio", (), 4, COUNT),
    Key("intermediate", (), "feed_forward_length", lambda config: config.ratio * config.hidden, COUNT), MPTKVHeads(),
    OWN_HEAD_DIM,
    Key("qkv", (), (), lambda config: (config.heads + 2 * config.kv_heads) * config.head_dim),
    Key("alibi", "attn_config.alibi", (), True, alibi_enabled),
    MaxAlibiBias("alibi_bias_max", "attn_config.alibi_bias_max", "attention.max_alibi_bias", 8.0, POSITIVE),
    Key("clip", "attn_config.clip_qkv", "attention.clamp_kqv", None, POSITIVE),
    Key("scale", "attn_config.softmax_scale", (), None, POSITIVE),
    Key("eps", "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE),
)  # fmt: skip
BLOCK = "transformer.blocks.{i}."
WEIGHTS = (
    *matrix("embed", "transformer.wte", "token_embd", shape=("vocab", "hidden")),
    *matrix("layers.{i}.attn_norm", f"{BLOCK}norm_1", "blk.{i}.attn_norm", shape=("hidden",)),
    *matrix("layers.{i}.attn.qkv", f"{BLOCK}attn.Wqkv", "blk.{i}.attn_qkv", shape=("qkv", "hidden")),
    *matrix("layers.{i}.attn.o", f"{BLOCK}attn.out_proj", "blk.{i}.attn_output", shape=("hidden", "hidden")),
    *matrix("layers.{i}.mlp_norm", f"{BLOCK}norm_2", "blk.{i}.ffn_norm", shape=("hidden",)),
    *matrix("layers.{i}.mlp.up", f"{BLOCK}ffn.up_proj", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", f"{BLOCK}ffn.down_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "transformer.norm_f", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with ALiBi, then a feed-forward network."""
    config = net.config
    x = net.begin()
    mask = biased(net, slopes(config.heads, config.alibi_bias_max))
    for i in range(config.layers):
        x = net.Add(x, _attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, mask))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", "gelu"))
    net.end(x, bias_norm)


def _attention(net: Decoder, x: Value, i: int, mask: Value) -> Value:
    config, name = net.config, f"layers.{i}.attn"
    qkv = linear(net, x, f"{name}.qkv")
    if config.clip:
        qkv = net.Clip(qkv, -config.clip, config.clip)
    q, k, v = net.split(qkv, [count * config.head_dim for count in (config.heads, config.kv_heads, config.kv_heads)])
    y = attend(net, q, k, v, i, scores=Scores(mask, config.scale))
    return linear(net, y, f"{name}.o")


ARCHITECTURES = (Architecture("mpt", "MPT", ("mpt",), ("mpt",), KEYS, WEIGHTS, decoder_tasks(build), tied=True),)
