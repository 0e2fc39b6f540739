"""Phi 1, 1.5 and 2 (Li et al. 2023, arXiv:2309.05463): attention and feed-forward network in parallel after one layer
norm."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, EVEN
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm, head_layer_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import HEAD
from ..schema.gguf.deviations import Unread
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import (
    DECODER,
    FUSED,
    HF_HEAD_DIM,
    LAYER_EPS,
    ROTARY,
    THETA,
    act,
    kv_heads_key,
    matrix,
    partial,
)

KEYS = (
    *DECODER, kv_heads_key(("num_key_value_heads", "n_head_kv")),
    HF_HEAD_DIM,
    Key("intermediate", ("intermediate_size", "n_inner"), "feed_forward_length", lambda config: 4 * config.hidden,
        COUNT), LAYER_EPS, THETA, Scaling(),
    act("gelu_tanh"), partial(0.5),
)  # fmt: skip
PHI_KEYS = (*KEYS, ROTARY)
MSFT_KEYS = (*KEYS, Key("rotary", "rotary_dim", "rope.dimension_count", kind=EVEN, at_most=("head_dim",)), FUSED)
WEIGHTS = (
    *matrix("embed", "model.embed_tokens", "token_embd", shape=("vocab", "hidden")),
    *matrix("layers.{i}.attn_norm", "model.layers.{i}.input_layernorm", "blk.{i}.attn_norm", shape=("hidden",)),
    *(
        row
        for part, heads in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads"))
        for row in matrix(
            f"layers.{{i}}.attn.{part}",
            f"model.layers.{{i}}.self_attn.{part}_proj",
            f"blk.{{i}}.attn_{part}",
            shape=(f"{heads}*head_dim", "hidden"),
        )
    ),
    *matrix(
        "layers.{i}.attn.q_norm",
        "model.layers.{i}.self_attn.q_layernorm",
        "blk.{i}.attn_q_norm",
        shape=("head_dim",),
        optional=True,
    ),
    *matrix(
        "layers.{i}.attn.k_norm",
        "model.layers.{i}.self_attn.k_layernorm",
        "blk.{i}.attn_k_norm",
        shape=("head_dim",),
        optional=True,
    ),
    *matrix(
        "layers.{i}.attn.o",
        "model.layers.{i}.self_attn.dense",
        "blk.{i}.attn_output",
        shape=("hidden", "heads*head_dim"),
    ),
    *matrix("layers.{i}.mlp.up", "model.layers.{i}.mlp.fc1", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", "model.layers.{i}.mlp.fc2", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "model.final_layernorm", "output_norm", shape=("hidden",)),
    *HEAD,
)
MSFT_WEIGHTS = (
    *matrix("embed", "transformer.embd.wte", "token_embd", shape=("vocab", "hidden")),
    *matrix("layers.{i}.attn_norm", "transformer.h.{i}.ln", "blk.{i}.attn_norm", shape=("hidden",)),
    *matrix("layers.{i}.attn.qkv", "transformer.h.{i}.mixer.Wqkv", "blk.{i}.attn_qkv", shape=("fused", "hidden")),
    *matrix(
        "layers.{i}.attn.o",
        "transformer.h.{i}.mixer.out_proj",
        "blk.{i}.attn_output",
        shape=("hidden", "heads*head_dim"),
    ),
    *matrix("layers.{i}.mlp.up", "transformer.h.{i}.mlp.fc1", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix("layers.{i}.mlp.down", "transformer.h.{i}.mlp.fc2", "blk.{i}.ffn_down", shape=("hidden", "intermediate")),
    *matrix("norm", "lm_head.ln", "output_norm", shape=("hidden",)),
    *matrix("head", "lm_head.linear", "output", shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Parallel layers: attention and feed-forward network read the same norm, and both are added to the residual."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        h = bias_norm(net, x, f"layers.{i}.attn_norm")
        y = self_attention(net, h, i, rotary, normed=head_layer_norm)
        x = net.Add(net.Add(y, plain(net, h, f"layers.{i}.mlp", config.act)), x)
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "phi",
        "Phi 1, 1.5, 2",
        ("phi",),
        ("phi2",),
        PHI_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required=OWN_HEAD,
        deviations=(Unread(r"\.attn_q_norm\."),),
        defaults={"phi": {"intermediate_size": 8192}},
    ),
    Architecture(
        "phi_msft",
        "Phi 1, 1.5, 2, first revisions",
        ("phi-msft", "mixformer-sequential"),
        (),
        MSFT_KEYS,
        MSFT_WEIGHTS,
        decoder_tasks(build),
    ),
)
