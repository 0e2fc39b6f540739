"""Qwen3-Next and Qwen 3.5, text (Alibaba 2025): Gated DeltaNet in most layers, gated attention in the others, and in
Qwen3-Next mixtures of experts with a shared expert."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...runtime.contract.architecture import SAME, Architecture, Config, Key, Layout, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed, flag
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import gated_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import softmax_mixture
from ..layers.norm import norm
from ..layers.recurrent.gated_delta_net import KEYS as DELTA
from ..layers.recurrent.gated_delta_net import gated_delta_net, interleaved_heads
from ..layers.recurrent.mamba import NEGATED
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import EMBED, GATED, HEAD, attention
from ..schema.fused_weight_layout import RowsOfGroups
from ..schema.gguf.deviations import PROJECTION_BIAS, Unread
from ..schema.hyperparameters import (
    DECODER,
    EXPERTS_USED,
    HEADS,
    INTERMEDIATE,
    LAYERS,
    RMS_EPS,
    ROTARY,
    THETA,
    act,
    matrix,
    partial,
)
from ..schema.layer_kinds import FullAttentionLayers, attends, recurs
from ..schema.qwen_mixture import MIXTURE, SHARED, sparse
from ..schema.weight_layout import Composed, Ordered, OrderedColumns, Plus, Reshaped

KEYS = (*DECODER, *HEADS, RMS_EPS, THETA, Scaling(), act("silu"), partial(0.25), ROTARY, FullAttentionLayers(), *DELTA)
NEXT_KEYS = (
    *KEYS,
    Key("intermediate", "intermediate_size", "feed_forward_length", 0),
    Key("experts", "num_experts", "expert_count", 512),
    EXPERTS_USED,
    Key("expert_intermediate", "moe_intermediate_size", "expert_feed_forward_length", kind=COUNT),
    Key("shared_intermediate", "shared_expert_intermediate_size", "expert_shared_feed_forward_length", kind=COUNT),
    Key("sparse_step", "decoder_sparse_step", (), 1, COUNT),
    Key("dense_layers", "mlp_only_layers", (), [], Listed(SIZE, most=LAYERS.high)),
    Key("normalize", "norm_topk_prob", (), True, flag),
)
SECTIONS = "mrope_section"


def _sections(value: Any) -> list[int]:
    """Three lengths, and a fourth that only GGUF files state."""
    found = Listed(SIZE, 3, 4)(value)
    return found + [0] * (4 - len(found))


KEYS_3_5 = (
    *KEYS,
    INTERMEDIATE,
    Key("sections", f"rope_parameters.{SECTIONS}", "rope.dimension_sections", [11, 11, 10, 0], _sections),
)
"""Sections of the rotated pairs, which have the positions of images; those of text are equal in all sections."""


def _normed(name: str, hf: str, gguf: str, shape: str = "hidden", attending: bool = False) -> tuple[Weight, Weight]:
    """Bindings of a norm that Hugging Face stores less one."""
    when = attends if attending else None
    return matrix(name, hf, gguf, hf_layout=Plus(1), shape=(shape,), when=when)


LAYER, MIXER = "model.layers.{i}.", "model.layers.{i}.linear_attn."
ATTENTION = f"{LAYER}self_attn."
COMMON = (
    *EMBED,
    *_normed("layers.{i}.attn_norm", f"{LAYER}input_layernorm", "blk.{i}.attn_norm"),
    *matrix("layers.{i}.attn.q", f"{ATTENTION}q_proj", "blk.{i}.attn_q", shape=("2*heads*head_dim", "hidden"),
            when=attends),
    *(row for row in attention(when=attends) if ".attn.q." not in row.name),
    *_normed("layers.{i}.attn.q_norm", f"{ATTENTION}q_norm", "blk.{i}.attn_q_norm", "head_dim", attending=True),
    *_normed("layers.{i}.attn.k_norm", f"{ATTENTION}k_norm", "blk.{i}.attn_k_norm", "head_dim", attending=True),
    *_normed("layers.{i}.mlp_norm", f"{LAYER}post_attention_layernorm", "blk.{i}.post_attention_norm"),
    *matrix("layers.{i}.inner_norm", f"{MIXER}norm", "blk.{i}.ssm_norm", shape=("value_size",), when=recurs),
    *_normed("norm", "model.norm", "output_norm"),
    *HEAD,
)  # fmt: skip
FLAT = Reshaped(("channels", 1, "taps"), ("channels", "taps"))


def _mixer(heads: Layout, channels: Layout, columns: Layout) -> tuple[Weight, ...]:
    """Bindings of the weights that both models name alike.

    Args:
        heads, channels, columns: Hugging Face's layout of what has an element for each value head, of the convolution,
            and of the output projection.
    """
    return (
        Weight("layers.{i}.conv.weight", Stored((f"{MIXER}conv1d.weight",), channels),
               Stored(("blk.{i}.ssm_conv1d.weight",), FLAT), shape=("channels", 1, "taps"), when=recurs),
        Weight("layers.{i}.dt.bias", Stored((f"{MIXER}dt_bias",), heads), "blk.{i}.ssm_dt.bias", shape=("value_heads",),
               when=recurs),
        Weight("layers.{i}.decay", Stored((f"{MIXER}A_log",), Composed(heads, NEGATED)), "blk.{i}.ssm_a",
               shape=("value_heads",), when=recurs),
        Weight("layers.{i}.out.weight", Stored((f"{MIXER}out_proj.weight",), columns), "blk.{i}.ssm_out.weight",
               shape=("hidden", "inner"), when=recurs),
    )  # fmt: skip


def _matrix_rows(config: Config) -> tuple[tuple[int, ...], ...]:
    """Rows of each key head in the fused projection: query, key and values; gates of the values."""
    values = config.sharing * config.value_size
    return (config.key_size, config.key_size, values), (values,)


def _head_rows(config: Config) -> tuple[tuple[int, ...], ...]:
    """Rows of each key head in the fused projection of update rates and decays."""
    return (config.sharing,), (config.sharing,)


def _grouped(name: str, index: int, *gguf: str, rows: str, gates: bool = False) -> Weight:
    """Binding of a projection that Qwen3-Next stores fused, the rows of each key head together."""
    theirs = "in_proj_ba" if gates else "in_proj_qkvz"
    layout = RowsOfGroups(_head_rows if gates else _matrix_rows, index, "key_heads")
    fused = Stored((f"blk.{{i}}.{'ssm_ba' if gates else 'ssm_in'}.weight",), layout)
    return Weight(f"layers.{{i}}.{name}.weight", Stored((f"{MIXER}{theirs}.weight",), layout), (*gguf, fused),
                  shape=(rows, "hidden"), when=recurs)  # fmt: skip


NEXT_WEIGHTS = (
    *COMMON,
    _grouped("qkv", 0, "blk.{i}.attn_qkv.weight", rows="channels"),
    _grouped("z", 1, "blk.{i}.attn_gate.weight", rows="inner"),
    _grouped("beta", 0, rows="value_heads", gates=True),
    _grouped("alpha", 1, rows="value_heads", gates=True),
    *_mixer(SAME, SAME, SAME),
    *MIXTURE,
    *SHARED,
)
VALUE_HEADS = Ordered(interleaved_heads(), "value_heads")
VALUES = Ordered(interleaved_heads("value_size"), "inner")
CHANNELS = Ordered(interleaved_heads("value_size", after="key_width"), "channels")
WEIGHTS_3_5 = (
    *COMMON,
    *(Weight(f"layers.{{i}}.{name}.weight", Stored((f"{MIXER}{theirs}.weight",), layout), f"blk.{{i}}.{gguf}.weight",
             shape=(rows, "hidden"), when=recurs)
      for name, theirs, gguf, rows, layout in (
          ("qkv", "in_proj_qkv", "attn_qkv", "channels", CHANNELS), ("z", "in_proj_z", "attn_gate", "inner", VALUES),
          ("beta", "in_proj_b", "ssm_beta", "value_heads", VALUE_HEADS),
          ("alpha", "in_proj_a", "ssm_alpha", "value_heads", VALUE_HEADS),
      )),
    *_mixer(VALUE_HEADS, CHANNELS, OrderedColumns(interleaved_heads("value_size"), "inner")),
    *GATED,
)  # fmt: skip


def build(net: Decoder, *, interleaved: bool = False) -> None:
    """Pre-norm layers: Gated DeltaNet or gated attention, then a gated network or a mixture of them."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        h = norm(net, x, f"layers.{i}.attn_norm")
        y = (
            gated_attention(net, h, i, rotary)
            if attends(config, i)
            else gated_delta_net(net, h, i, interleaved=interleaved)
        )
        x = net.Add(x, y)
        h, name = norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp"
        routed = net.has(f"{name}.router.weight") and sparse(config, i)
        x = net.Add(x, softmax_mixture(net, h, name) if routed else gated(net, h, name, config.act))
    net.end(x, norm)


def build_3_5(net: Decoder) -> None:
    """Qwen 3.5: value heads as GGUF files order them, gated networks."""
    build(net, interleaved=True)


def _vector_epsilon(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose norms have a large epsilon."""
    why = f"normalizes queries and keys of linear attention with epsilon {config.eps:g} in place of 1e-06"
    return None if config.eps <= 1e-5 else why


ARCHITECTURES = (
    Architecture(
        "qwen3_next",
        "Qwen3-Next",
        ("qwen3_next",),
        ("qwen3next",),
        NEXT_KEYS,
        NEXT_WEIGHTS,
        decoder_tasks(build),
        deviations=(Unread(PROJECTION_BIAS), _vector_epsilon),
        defaults={
            "qwen3_next": {
                "intermediate_size": 5632,
                "num_key_value_heads": 2,
                "max_position_embeddings": 32768,
                "head_dim": 256,
            }
        },
    ),
    Architecture(
        "qwen3_5",
        "Qwen 3.5, text",
        ("qwen3_5_text",),
        ("qwen35",),
        KEYS_3_5,
        WEIGHTS_3_5,
        decoder_tasks(build_3_5),
        deviations=(Unread(PROJECTION_BIAS), _vector_epsilon),
        defaults={"qwen3_5_text": {"head_dim": 256, "num_key_value_heads": 4, "max_position_embeddings": 32768}},
    ),
)
