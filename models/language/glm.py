"""GLM-4 in three checkpoint layouts, ChatGLM 2 and 3, CodeGeeX4 (Team GLM 2024, arXiv:2406.12793): interleaved rotary
embedding of half of each head.

ChatGLM checkpoints store queries, keys and values fused, those of transformers (``glm``) separately; GGUF files exist
for both. GLM-4 of April 2025 (``glm4``) adds norms after each block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Real, checked, flag, word
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated_fused
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM
from ..schema.fused_weight_layout import qkv_rows
from ..schema.hyperparameters import (
    DECODER,
    DOUBLE,
    FREQUENCY_BASE,
    FUSED,
    HEADS,
    HF_HEAD_DIM,
    INTERMEDIATE,
    KV_HEADS,
    ROTARY,
    THETA,
    Vocabulary,
    act,
    matrix,
    partial,
    shared_heads,
)

BASE = 10000.0
RATIO = Real(1e-3, 1e9)


@dataclass(frozen=True)
class RopeRatio:
    """Hyper-parameter: RoPE base, which ChatGLM checkpoints store as a multiple of 10000."""

    name: str = "theta"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float:
        key, kind, factor = ("rope_ratio", RATIO, BASE) if names == HF else ("rope.freq_base", FREQUENCY_BASE, 1.0)
        said = source.get(key)
        return BASE if said is None else factor * checked(key, said, kind)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"rope_ratio": config.theta / BASE} if names == HF else {"rope.freq_base": config.theta}


@dataclass(frozen=True)
class ChatGLMKVHeads:
    """Hyper-parameter: KV heads of ChatGLM checkpoints; fewer than query heads only with `multi_query_attention`."""

    name: str = "kv_heads"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names != HF:
            return shared_heads(
                "attention.head_count_kv", source.get("attention.head_count_kv") or config.heads, config
            )
        key = "multi_query_group_num"
        return shared_heads(key, source[key], config) if source.get("multi_query_attention") else int(config.heads)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {"attention.head_count_kv": config.kv_heads}
        return {"multi_query_attention": config.kv_heads != config.heads, "multi_query_group_num": config.kv_heads}


def _disabled(name: str) -> Key:
    """Hyper-parameter of ChatGLM checkpoints that must be off: no published model enables it."""

    def off(value: Any) -> bool:
        if flag(value):
            raise ValueError(f"{name} is not supported")
        return False

    return Key(name, name, (), False, off)


EPS = Key("eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1.5625e-7, NOT_NEGATIVE)
REST = (INTERMEDIATE, THETA, Scaling(), act("silu"), partial(0.5), ROTARY, DOUBLE)
KEYS = (*DECODER, KV_HEADS, HF_HEAD_DIM, EPS, *REST)
GLM4_KEYS = (*DECODER, *HEADS, EPS, *REST)
CHAT_KEYS = (
    Key("task", (), (), "lm", word), Vocabulary(key="padded_vocab_size"), *DECODER[2:], ChatGLMKVHeads(),
    Key("head_dim", "kv_channels", (), lambda config: config.hidden // config.heads, COUNT),
    Key("intermediate", "ffn_hidden_size", "feed_forward_length", kind=COUNT),
    Key("eps", "layernorm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5, NOT_NEGATIVE),
    RopeRatio(), Scaling(), act("silu"), partial(0.5), ROTARY, FUSED, DOUBLE,
    _disabled("apply_residual_connection_post_layernorm"), _disabled("add_bias_linear"),
)  # fmt: skip

HF_LAYER, CHAT_LAYER, GGUF_LAYER = "model.layers.{i}.", "transformer.encoder.layers.{i}.", "blk.{i}."


def _queries() -> tuple[Weight, ...]:
    """Weights of queries, keys and values, separate or (in some GGUF files) fused."""
    return tuple(
        Weight(
            f"layers.{{i}}.attn.{part}.{kind}",
            f"{HF_LAYER}self_attn.{part}_proj.{kind}",
            (Stored((f"{GGUF_LAYER}attn_{part}.{kind}",)), Stored((f"{GGUF_LAYER}attn_qkv.{kind}",), qkv_rows(part))),
            shape=(size, "hidden")[: 2 if kind == "weight" else 1],
            optional=kind == "bias",
        )
        for part, size in (("q", "heads*head_dim"), ("k", "kv_heads*head_dim"), ("v", "kv_heads*head_dim"))
        for kind in ("weight", "bias")
    )


MLP = (
    *matrix("layers.{i}.mlp.both", f"{HF_LAYER}mlp.gate_up_proj", f"{GGUF_LAYER}ffn_up", shape=("double", "hidden")),
    *matrix(
        "layers.{i}.mlp.down", f"{HF_LAYER}mlp.down_proj", f"{GGUF_LAYER}ffn_down", shape=("hidden", "intermediate")
    ),
)
OUTPUT = matrix(
    "layers.{i}.attn.o", f"{HF_LAYER}self_attn.o_proj", f"{GGUF_LAYER}attn_output", shape=("hidden", "heads*head_dim")
)
WEIGHTS = (*EMBED, *ATTN_NORM, *_queries(), *OUTPUT, *MLP_NORM, *MLP, *NORM, *HEAD)
GLM4_WEIGHTS = (
    *EMBED, *ATTN_NORM, *_queries(), *OUTPUT,
    *matrix("layers.{i}.after_attn", f"{HF_LAYER}post_self_attn_layernorm", f"{GGUF_LAYER}post_attention_norm",
            shape=("hidden",)),
    *MLP_NORM, *MLP,
    *matrix("layers.{i}.after_mlp", f"{HF_LAYER}post_mlp_layernorm", f"{GGUF_LAYER}post_ffw_norm", shape=("hidden",)),
    *NORM, *HEAD,
)  # fmt: skip
CHAT_WEIGHTS = (
    *matrix("embed", "transformer.embedding.word_embeddings", "token_embd", shape=("vocab", "hidden")),
    *matrix("layers.{i}.attn_norm", f"{CHAT_LAYER}input_layernorm", f"{GGUF_LAYER}attn_norm", shape=("hidden",)),
    *matrix(
        "layers.{i}.attn.qkv",
        f"{CHAT_LAYER}self_attention.query_key_value",
        f"{GGUF_LAYER}attn_qkv",
        shape=("fused", "hidden"),
    ),
    *matrix(
        "layers.{i}.attn.o",
        f"{CHAT_LAYER}self_attention.dense",
        f"{GGUF_LAYER}attn_output",
        shape=("hidden", "heads*head_dim"),
    ),
    *matrix("layers.{i}.mlp_norm", f"{CHAT_LAYER}post_attention_layernorm", f"{GGUF_LAYER}ffn_norm", shape=("hidden",)),
    *matrix("layers.{i}.mlp.both", f"{CHAT_LAYER}mlp.dense_h_to_4h", f"{GGUF_LAYER}ffn_up", shape=("double", "hidden")),
    *matrix(
        "layers.{i}.mlp.down",
        f"{CHAT_LAYER}mlp.dense_4h_to_h",
        f"{GGUF_LAYER}ffn_down",
        shape=("hidden", "intermediate"),
    ),
    *matrix("norm", "transformer.encoder.final_layernorm", "output_norm", shape=("hidden",)),
    *matrix("head", "transformer.output_layer", "output", optional=True, shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Pre-norm layers of attention and gated networks, with post-norms if the model has them."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context, interleaved=True)

    def after(y: Value, name: str) -> Value:
        return norm(net, y, name) if net.has(f"{name}.weight") else y

    x = net.begin()
    for i in range(config.layers):
        name = f"layers.{i}"
        y = self_attention(net, norm(net, x, f"{name}.attn_norm"), i, rotary)
        x = net.Add(x, after(y, f"{name}.after_attn"))
        y = gated_fused(net, norm(net, x, f"{name}.mlp_norm"), f"{name}.mlp", config.act, config.intermediate)
        x = net.Add(x, after(y, f"{name}.after_mlp"))
    net.end(x, norm)


IGNORED = (*Architecture.ignored, r"rotary_pos_emb\.inv_freq$")
ARCHITECTURES = (
    Architecture(
        "glm",
        "GLM-4",
        ("glm",),
        ("chatglm",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        defaults={
            "glm": {
                "head_dim": 128,
                "num_key_value_heads": 2,
                "max_position_embeddings": 131072,
                "pad_token_id": 151329,
            }
        },
    ),
    Architecture(
        "chatglm",
        "ChatGLM 2 and 3, GLM-4, CodeGeeX4",
        ("chatglm",),
        ("chatglm",),
        CHAT_KEYS,
        CHAT_WEIGHTS,
        decoder_tasks(build),
        accepts=lambda source: source.get("model_type") == "chatglm",
        ignored=IGNORED,
    ),
    Architecture(
        "glm4",
        "GLM-4 0414",
        ("glm4",),
        ("glm4",),
        GLM4_KEYS,
        GLM4_WEIGHTS,
        decoder_tasks(build),
        defaults={
            "glm4": {
                "head_dim": 128,
                "num_key_value_heads": 2,
                "max_position_embeddings": 131072,
                "pad_token_id": 151329,
            }
        },
    ),
)
