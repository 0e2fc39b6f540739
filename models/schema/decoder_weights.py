"""Weight bindings most decoders share: embedding, attention, gated feed-forward network, last norm, head."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.contract.architecture import SAME, Config, Weight
from .hyperparameters import experts, matrix
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
WHOLE_QK_NORM = tuple(
    row
    for part, heads in (("q", "heads"), ("k", "kv_heads"))
    for row in matrix(
        f"layers.{{i}}.attn.{part}_norm",
        f"model.layers.{{i}}.self_attn.{part}_norm",
        f"blk.{{i}}.attn_{part}_norm",
        shape=(f"{heads}*head_dim",),
    )
)
"""Norms of queries and of keys over all heads at once; `QK_NORM` are those of each head."""
AFTER_ATTN = matrix(
    "layers.{i}.after_attn",
    "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.post_attention_norm",
    shape=("hidden",),
)
AFTER_MLP = matrix(
    "layers.{i}.after_mlp", "model.layers.{i}.post_feedforward_layernorm", "blk.{i}.post_ffw_norm", shape=("hidden",)
)
"""Norms after each block."""
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

UNGATED = GATED[2:]
"""Bindings of a feed-forward network without a gate."""


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


def mixture(
    router: str,
    expert: str,
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    *,
    width: str = "intermediate",
    when: Callable[[Config, int], bool] | None = None,
) -> tuple[Weight, ...]:
    """Bindings of a mixture of gated experts: the router, and the gate, up and down projections of every expert.

    Args:
        router: Hugging Face name of the router.
        expert: Hugging Face name of an expert, with ``{e}``.
        parts: Hugging Face names of an expert's projections.
        width: name of the parameter that holds the elements between an expert's projections.
        when: whether layer `i` has a mixture; None for every layer.
    """
    inner, outer = ("experts", width, "hidden"), ("experts", "hidden", width)
    ours, gguf = "layers.{i}.mlp.", "blk.{i}.ffn_"
    rows = zip(("gate", "up", "down"), parts, (inner, inner, outer), strict=True)
    return (
        *matrix(f"{ours}router", router, f"{gguf}gate_inp", shape=("experts", "hidden"), when=when),
        *(
            experts(f"{ours}experts.{part}", f"{expert}.{theirs}", f"{gguf}{part}_exps", shape=shape, when=when)
            for part, theirs, shape in rows
        ),
    )


BLOCK_SPARSE = mixture(
    "model.layers.{i}.block_sparse_moe.gate", "model.layers.{i}.block_sparse_moe.experts.{e}", ("w1", "w3", "w2")
)
"""Mixtral's names of a mixture of experts."""
