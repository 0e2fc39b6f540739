"""Hyper-parameters and names that the text and image encoders of CLIP and SigLIP share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import HF, ORIGINAL, Config, Key, Row, Stored, Weight
from ....runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, flag, word
from ....runtime.contract.naming import Module
from ....runtime.tensor.stored_tensor import StoredTensor
from ..encoder_weights import norm
from ..fused_weight_layout import RowShare
from ..hyperparameters import LAYERS, OWN_HEAD_DIM, matrix
from ..network_hyperparameters import image_act, norm_eps
from ..vit import ImageSize, settle_vit
from ..weight_layout import JOINED, LeadingAxes

PROJECTED = "WithProjection"
"""Suffix of the names of transformers' classes of towers with a projection."""
LAYER, BLOCK, NAME = "encoder.layers.{i}.", "transformer.resblocks.{i}.", "layers.{i}."
"""Prefixes of names in a layer: transformers', OpenCLIP's, and our own."""


@dataclass(frozen=True)
class Tower:
    """Hyper-parameter: the task of a tower, whose class in config.json says whether it has a projection.

    Attributes:
        stem: how the names of transformers' classes begin.
        task: the only task.
    """

    stem: str
    task: str
    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        return self.task

    def write(self, names: str, config: Config) -> dict[str, Any]:
        end = PROJECTED if config.values.get("projected") else ""
        return {"architectures": [self.stem + end]} if names == HF else {}


def text_keys(
    stem: str, task: str, *, hidden: int, layers: int, heads: int, vocab: int, context: int, eps: float
) -> tuple[Row, ...]:
    """The rows of text towers; the numbers are transformers' defaults, which its files leave out."""
    return (
        Tower(stem, task),
        Key("vocab", "vocab_size", "vocab_size", vocab, COUNT),
        Key("context", "max_position_embeddings", "context_length", context, COUNT),
        Key("hidden", "hidden_size", "embedding_length", hidden, COUNT),
        Key("layers", "num_hidden_layers", "block_count", layers, LAYERS),
        Key("heads", "num_attention_heads", "attention.head_count", heads, COUNT),
        Key("intermediate", "intermediate_size", "feed_forward_length", 4 * hidden, COUNT),
        Key("eps", "layer_norm_eps", "attention.layer_norm_epsilon", eps, NOT_NEGATIVE),
        OWN_HEAD_DIM,
    )


def text_weights(prefix: str) -> tuple[Weight, ...]:
    """The rows of weights of text towers; `prefix` of transformers' names, such as ``text_model.``. Files of OpenCLIP
    have names of their own."""
    hf, square = prefix + LAYER, ("hidden", "hidden")
    rows = (
        Weight(
            "embed.weight",
            (f"{prefix}embeddings.token_embedding.weight", "token_embedding.weight"),
            "token_embd.weight",
            ("vocab", "hidden"),
        ),
        Weight(
            "positions.weight",
            (f"{prefix}embeddings.position_embedding.weight", "positional_embedding"),
            "position_embd.weight",
            ("context", "hidden"),
        ),
        *(
            Weight(
                f"{NAME}attn.{part}.{kind}",
                (f"{hf}self_attn.{part}_proj.{kind}", Stored((f"{BLOCK}attn.in_proj_{kind}",), RowShare(i, i + 1, 3))),
                f"blk.{{i}}.attn_{part}.{kind}",
                square[: 2 if kind == "weight" else 1],
            )
            for i, part in enumerate("qkv")
            for kind in ("weight", "bias")
        ),
        *matrix(
            f"{NAME}attn.o", (f"{hf}self_attn.out_proj", f"{BLOCK}attn.out_proj"), "blk.{i}.attn_output", shape=square
        ),
        *norm(f"{NAME}attn_norm", (f"{hf}layer_norm1", f"{BLOCK}ln_1"), "blk.{i}.attn_norm"),
        *norm(f"{NAME}mlp_norm", (f"{hf}layer_norm2", f"{BLOCK}ln_2"), "blk.{i}.ffn_norm"),
        *matrix(
            f"{NAME}mlp.up", (f"{hf}mlp.fc1", f"{BLOCK}mlp.c_fc"), "blk.{i}.ffn_up", shape=("intermediate", "hidden")
        ),
        *matrix(
            f"{NAME}mlp.down",
            (f"{hf}mlp.fc2", f"{BLOCK}mlp.c_proj"),
            "blk.{i}.ffn_down",
            shape=("hidden", "intermediate"),
        ),
        *norm("norm", (f"{prefix}final_layer_norm", "ln_final"), "output_norm"),
    )
    return tuple(map(with_original, rows))


def with_original(row: Weight) -> Weight:
    """A row with an original name: the second half of those in ``hf`` are OpenCLIP's, the usual one first."""
    assert isinstance(row.hf, tuple)
    return dataclasses.replace(row, others={ORIGINAL: row.hf[len(row.hf) // 2]})


def vision_keys(stem: str, task: str, *, act: str, eps: float, patch: int, pool: str) -> tuple[Row, ...]:
    """The rows of vision towers of transformers' base size."""
    return (
        Tower(stem, task),
        Key("hidden", "hidden_size", "embedding_length", 768, COUNT),
        Key("layers", "num_hidden_layers", "block_count", 12, COUNT, at_most=("hidden",)),
        Key("heads", "num_attention_heads", "attention.head_count", 12, COUNT, at_most=("hidden",)),
        Key("intermediate", "intermediate_size", "feed_forward_length", 3072, COUNT),
        Key("patch", "patch_size", "patch_size", patch, COUNT),
        ImageSize(),
        norm_eps(eps, "layer_norm_eps"),
        image_act(act),
        Key("pool", (), (), pool, word),
        Key("antialias", (), (), False, flag),
        Key("projection", "projection_dim", "projection_length", None, COUNT),
    )


def settle_vision(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    settle_vit(config, weights)
    projection = weights.get("visual_projection.weight")
    config.values["projected"] = projection is not None
    config.values["projection"] = None if projection is None else projection.shape[0]


def vision_modules(prefix: str, heads: tuple[Module, ...]) -> tuple[Module, ...]:
    """The modules of vision towers under timm's names of a vision transformer; those of files of OpenCLIP are their
    original names.

    Args:
        prefix: of transformers' names, such as ``vision_model.``.
        heads: modules after the layers.
    """
    hf, block, original = prefix + LAYER, "blocks.{i}.", f"visual.{BLOCK}"
    return (
        Module(
            "cls_token",
            hf=f"{prefix}embeddings.class_embedding",
            original="visual.class_embedding",
            layout=LeadingAxes(2),
        ),
        Module(
            "pos_embed",
            hf=f"{prefix}embeddings.position_embedding.weight",
            original="visual.positional_embedding",
            layout=LeadingAxes(1),
        ),
        Module("patch_embed.proj", hf=f"{prefix}embeddings.patch_embedding", original="visual.conv1"),
        Module("norm_pre", hf=f"{prefix}pre_layrnorm", original="visual.ln_pre"),
        Module(f"{block}norm1", hf=f"{hf}layer_norm1", original=f"{original}ln_1"),
        Module(f"{block}norm2", hf=f"{hf}layer_norm2", original=f"{original}ln_2"),
        Module(f"{block}mlp.fc1", hf=f"{hf}mlp.fc1", original=f"{original}mlp.c_fc"),
        Module(f"{block}mlp.fc2", hf=f"{hf}mlp.fc2", original=f"{original}mlp.c_proj"),
        *(
            Module(
                f"{block}attn.qkv.{kind}",
                hf=tuple(f"{hf}self_attn.{part}_proj.{kind}" for part in "qkv"),
                original=f"{original}attn.in_proj_{kind}",
                layout=JOINED,
            )
            for kind in ("weight", "bias")
        ),
        Module(f"{block}attn.proj", hf=f"{hf}self_attn.out_proj", original=f"{original}attn.out_proj"),
        *heads,
    )
