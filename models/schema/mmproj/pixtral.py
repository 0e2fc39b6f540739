"""Pixtral's encoder in llama.cpp's files (mmproj), whose queries and keys rotate neighbouring elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.contract.architecture import Config, Stored, Weight
from ....runtime.tensor.stored_tensor import StoredTensor
from ..weight_layout import Ordered
from .keys import image_processor
from .llava import OPENAI_MEAN, OPENAI_STD
from .vit import BLOCK, LAYERS, pair

THETA = 10000.0
"""Base of llama.cpp's frequencies."""
NAME = "vision.blocks.{i}."


def _pairs(config: Config) -> np.ndarray:
    """For each row of queries or keys with half-split pairs its row among interleaved ones."""
    heads, hidden = config.values["vision.heads"], config.values["vision.hidden"]
    if hidden % (2 * heads):
        raise ValueError(f"rotary embedding needs an even number of elements per head, not {hidden} / {heads}")
    return np.arange(hidden).reshape(heads, -1, 2).swapaxes(1, 2)


def pixtral_weights() -> tuple[Weight, ...]:
    """The rows of the encoder."""
    rotated = Ordered(_pairs, "vision.hidden")
    return (
        *pair("vision.patch_embed.proj", "v.patch_embd"),
        *pair("vision.norm_pre", "v.pre_ln"),
        *pair(f"{NAME}norm1", f"{BLOCK}ln1"),
        *(
            Weight(f"{NAME}attn.{part}.weight", gguf=Stored((f"{BLOCK}attn_{part}.weight",), rotated), layers=LAYERS)
            for part in "qk"
        ),
        *pair(f"{NAME}attn.v", f"{BLOCK}attn_v"),
        *pair(f"{NAME}attn.o", f"{BLOCK}attn_out"),
        *pair(f"{NAME}norm2", f"{BLOCK}ln2"),
        *(row for part in ("gate", "up", "down") for row in pair(f"{NAME}mlp.{part}", f"{BLOCK}ffn_{part}")),
    )


def pixtral_stated(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Hyper-parameters that no key holds."""
    return {"layer": -1, "select": "full", "act": "gelu", "vision.theta": THETA}


def pixtral_misfit(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """What llama.cpp computes otherwise, empty if nothing."""
    if config.values["vision.theta"] != THETA:
        return f"its encoder rotates with the base {THETA:g}, not {config.values['vision.theta']:g}"
    if "projector.linear_1.bias" not in weights:
        return "it has no projectors without biases"
    if config.values["vision.act"] not in ("silu", "gelu", "gelu_tanh"):
        return f"it has no activation {config.values['vision.act']} in this encoder"
    return ""


def pixtral_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json."""
    side = config.values.get("vision.patch", 16)
    return image_processor(
        "PixtralImageProcessor", config, OPENAI_MEAN, OPENAI_STD, resample=3,
        size={"longest_edge": config.values.get("vision.image_size", 1024)},
        patch_size={"height": side, "width": side},
    )  # fmt: skip
