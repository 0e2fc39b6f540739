"""gpt-oss (OpenAI 2025, arXiv:2508.10925): attention sinks, sliding windows in every other layer, experts with clamped
gates.

MXFP4 experts stay quantized. GGUF files do not record whether the YaRN range is rounded to whole dimensions; llama.cpp
rounds it, and GGUF files are read so, while the published models do not round.
"""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key, Row, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import projected
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.moe import matmul_experts, top
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, NORM, attention
from ..schema.fused_weight_layout import EveryOther, TransposedExperts
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HEADS,
    INTERMEDIATE,
    RMS_EPS_5,
    Fixed,
    Windows,
    frequency_base,
    matrix,
)
from ..schema.rope.stated_parameters import RopeSection

ROPE = RopeSection(
    default={"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
)
KEYS: tuple[Row, ...] = (
    *DECODER, *HEADS, INTERMEDIATE,
    Key("expert_intermediate", (), "expert_feed_forward_length", lambda config: config.intermediate, COUNT), RMS_EPS_5,
    frequency_base(150000.0), Scaling(section=ROPE),
    Windows(lambda config, i: i % 2 == 0, period=2, usual=128),
    Key("experts", "num_local_experts", "expert_count", kind=COUNT), EXPERTS_USED,
    Fixed("limit", "swiglu_limit", 7.0), Fixed("steep", "swiglu_alpha", 1.702),
)  # fmt: skip
EXPERTS, GGUF_NAMES, OURS = "model.layers.{i}.mlp.experts.", "blk.{i}.ffn_", "layers.{i}.mlp.experts."
INNER, OUTER = ("experts", "intermediate", "hidden"), ("experts", "hidden", "intermediate")
WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(),
    Weight("layers.{i}.attn.sinks", "model.layers.{i}.self_attn.sinks", "blk.{i}.attn_sinks.weight", shape=("heads",)),
    *matrix(
        "layers.{i}.mlp_norm",
        "model.layers.{i}.post_attention_layernorm",
        "blk.{i}.post_attention_norm",
        shape=("hidden",),
    ),
    *matrix(
        "layers.{i}.mlp.router", "model.layers.{i}.mlp.router", f"{GGUF_NAMES}gate_inp", shape=("experts", "hidden")
    ),
    *(
        Weight(
            f"{OURS}{part}.{kind}",
            Stored((f"{EXPERTS}gate_up_proj{ending}",), EveryOther(index)),
            f"{GGUF_NAMES}{part}_exps.{kind}",
            shape=shape,
        )
        for index, part in enumerate(("gate", "up"))
        for kind, ending, shape in (("weight", "", INNER), ("bias", "_bias", INNER[:2]))
    ),
    Weight(
        f"{OURS}down.weight",
        Stored((f"{EXPERTS}down_proj",), TransposedExperts()),
        f"{GGUF_NAMES}down_exps.weight",
        shape=OUTER,
    ),
    Weight(f"{OURS}down.bias", f"{EXPERTS}down_proj_bias", f"{GGUF_NAMES}down_exps.bias", shape=OUTER[:2]),
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with sinks, then a mixture of experts."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.begin()
    for i, window in enumerate(config.windows):
        x = net.Add(x, _attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, window))
        x = net.Add(x, _mixture(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp"))
    net.end(x, norm)


def _attention(net: Decoder, x: Value, i: int, rotary: Rotary, window: int | None) -> Value:
    """Attention with one learned sink logit per head in the softmax."""
    config, name = net.config, f"layers.{i}.attn"
    heads, groups, size = config.heads, config.kv_heads, config.head_dim
    q, k, v = projected(net, x, name)
    q, k = rotary.rotate(net, q, heads, net.positions), rotary.rotate(net, k, groups, net.positions)

    keys, values = (
        net.cached(f"key_values.{i}.{what}", each, groups, size, window) for what, each in (("key", k), ("value", v))
    )
    queries = net.Transpose(net.split_heads(q, heads, size), perm=[0, 2, 1, 3])
    y = net.AttentionWithSinks(queries, keys, values, net.visible(window), net.vector(f"{name}.sinks"), domain="candle")
    return linear(net, net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")


def _mixture(net: Decoder, x: Value, name: str) -> Value:
    """The top experts, weighted by the softmax of their logits; each computes (up + 1) * gate * sigmoid(alpha * gate)
    with both clamped."""
    config = net.config
    tokens = net.Reshape(x, [-1, config.hidden])
    logits, ids = top(net, linear(net, tokens, f"{name}.router"), config.experts_used)
    gate, up = (matmul_experts(net, tokens, f"{name}.experts.{part}", ids, each=False) for part in ("gate", "up"))
    gate, up = net.Min(gate, config.limit), net.Clip(up, -config.limit, config.limit)
    gated = net.Mul(net.Add(up, 1.0), net.Mul(gate, net.Sigmoid(net.Mul(gate, config.steep))))
    down = matmul_experts(net, gated, f"{name}.experts.down", ids, each=True)
    mixed = net.ReduceSum(net.Mul(down, net.Unsqueeze(net.Softmax(logits, axis=-1), [2])), [1], keepdims=0)
    return net.Reshape(mixed, net.Shape(x))


ARCHITECTURES = (
    Architecture(
        "gpt_oss",
        "gpt-oss",
        ("gpt_oss",),
        ("gpt-oss",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required={**OWN_HEAD, **{f"layers.{{i}}.attn.{part}.bias": None for part in "qkvo"}},
        defaults={"gpt_oss": {"head_dim": 64, "num_key_value_heads": 8, "max_position_embeddings": 131072}},
    ),
)
