"""Weights of CLIP's and SigLIP's image encoders in llama.cpp's files (mmproj)."""

from __future__ import annotations

from ....runtime.contract.architecture import SAME, Layout, Stored, Weight
from ..weight_layout import JOINED, LeadingAxes

KINDS = ("weight", "bias")
LAYERS, BLOCK = "vision.layers", "v.blk.{i}."
HIDDEN = "text.hidden"
"""The width of features and of the language model's embeddings."""


def pair(
    own: str, theirs: str, layout: Layout = SAME, *, layers: str = LAYERS, shape: tuple[str, ...] | None = None
) -> tuple[Weight, Weight]:
    """The weight and the bias of a module, which a file may lack; `shape` of the weight, None where that of the whole
    model's row is enough."""
    first, second = (
        Weight(
            f"{own}.{kind}",
            gguf=Stored((f"{theirs}.{kind}",), layout),
            shape=None if shape is None else shape[:1] if kind == "bias" else shape,
            optional=True,
            layers=layers,
        )
        for kind in KINDS
    )
    return first, second


def vit_weights(post_norm: str = "") -> tuple[Weight, ...]:
    """The rows of an encoder; `post_norm`: own name of the norm after the layers, empty if files do not have it."""
    name = "vision.blocks.{i}."
    return (
        Weight("vision.cls_token", gguf=Stored(("v.class_embd",), LeadingAxes(2)), optional=True),
        Weight("vision.pos_embed", gguf=Stored(("v.position_embd.weight",), LeadingAxes(1))),
        *pair("vision.patch_embed.proj", "v.patch_embd"),
        *pair("vision.norm_pre", "v.pre_ln"),
        *pair(f"{name}norm1", f"{BLOCK}ln1"),
        *(
            Weight(
                f"{name}attn.qkv.{kind}",
                gguf=(
                    Stored(tuple(f"{BLOCK}attn_{part}.{kind}" for part in "qkv"), JOINED),
                    Stored((f"{BLOCK}attn_qkv.{kind}",)),
                ),
                optional=True,
                layers=LAYERS,
            )
            for kind in KINDS
        ),
        *pair(f"{name}attn.proj", f"{BLOCK}attn_out"),
        *pair(f"{name}norm2", f"{BLOCK}ln2"),
        *pair(f"{name}mlp.fc1", f"{BLOCK}ffn_up"),
        *pair(f"{name}mlp.fc2", f"{BLOCK}ffn_down"),
        *(pair(post_norm, "v.post_ln") if post_norm else ()),
    )
