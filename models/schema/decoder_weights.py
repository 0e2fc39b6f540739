"""Weight bindings most decoders share: embedding, attention, gated feed-forward network, last norm, head."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.contract.architecture import SAME, Config, Weight
from .hyperparameters import matrix
from .weight_layout import rotary_pairs

EMBED = matrix("embed", "model.embed_tokens", "token_embd", shape=("vocab", "hidden"))
ATTN_NORM = matrix("layers.{i}.attn_norm", "model.layers.{i}.input_layernorm", "blk.{i}.attn_norm", shape=("hidden",))
MLP_NORM = matrix(
    "layers.{i}.mlp_norm", "model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm", shape=("hidden",)
)
QK_NORM = (
    *matrix("layers.{i}.attn.q_norm", "model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm", shape=("head_dim",)),
    *matrix("layers.{i}.attn.k_norm", "model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm", shape=("head_dim",)),
)
NORM = matrix("norm", "model.norm", "output_norm", shape=("hidden",))
HEAD = matrix("head", "lm_head", "output", optional=True, shape=("vocab", "hidden"))
GATED = (
    *matrix(
        "layers.{i}.mlp.gate", "model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate", shape=("intermediate", "hidden")
    ),
    *matrix("layers.{i}.mlp.up", "model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up", shape=("intermediate", "hidden")),
    *matrix(
        "layers.{i}.mlp.down", "model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down", shape=("hidden", "intermediate")
    ),
)


def attention(
    *, pairs: bool = False, output: str = "o_proj", when: Callable[[Config, int], bool] | None = None
) -> tuple[Weight, ...]:
    """Bindings of the query, key, value and output projections, each a separate matrix.

    Args:
        pairs: whether GGUF files store query and key rows in interleaved rotary pairs.
        output: Hugging Face name of the output projection.
        when: whether layer `i` attends; None for every layer.
    """
    hf, gguf, name = "model.layers.{i}.self_attn.", "blk.{i}.attn_", "layers.{i}.attn."
    queries, keys = (rotary_pairs("heads"), rotary_pairs("kv_heads")) if pairs else (SAME, SAME)
    rows = (
        ("q", "q_proj", "q", ("heads*head_dim", "hidden"), queries),
        ("k", "k_proj", "k", ("kv_heads*head_dim", "hidden"), keys),
        ("v", "v_proj", "v", ("kv_heads*head_dim", "hidden"), SAME),
        ("o", output, "output", ("hidden", "heads*head_dim"), SAME),
    )
    return tuple(
        row
        for ours, theirs, stored, shape, layout in rows
        for row in matrix(f"{name}{ours}", hf + theirs, gguf + stored, shape=shape, gguf_layout=layout, when=when)
    )
