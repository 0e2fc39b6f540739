"""Pixtral's encoder in llama.cpp's files (mmproj), whose queries and keys rotate neighbouring elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....runtime.contract.architecture import Config, Key, Row, Stored, Weight
from ....runtime.contract.mmproj import Mmproj
from ....runtime.tensor.stored_tensor import StoredTensor
from ..weight_layout import Ordered
from .keys import EPS, SIDE, Activation, Fixed, exact_gelu, image_processor, vision_keys
from .llava import OPENAI_MEAN, OPENAI_STD
from .vit import BLOCK, HIDDEN, LAYERS, pair

PIXTRAL = "pixtral"
"""The kind of projector, and the `model_type` of the encoder, whose pictures have any size."""
THETA, EPSILON = 10000.0, 1e-5
"""Base of llama.cpp's frequencies, and what it adds in norms."""
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
    """The difference to llama.cpp's computation, empty if none."""
    if config.values["vision.theta"] != THETA:
        return f"its encoder rotates with the base {THETA:g}, not {config.values['vision.theta']:g}"
    if config.layer != -1:
        return f"it takes the features of the last layer, not of layer {config.layer}"
    if config.values["vision.act"] not in ("silu", "gelu", "gelu_tanh"):
        return f"it has no activation {config.values['vision.act']} in this encoder"
    return ""


def pixtral_approximated(config: Config) -> str:
    """The small deviation of llama.cpp: the norm of a projector takes the language model's epsilon."""
    eps = config.values.get("text.eps", EPSILON) if "merge" in config.values else EPSILON
    norm = "" if eps == EPSILON else f"the norm of its projector adds {EPSILON:g}, not {eps:g}"
    return "; ".join(filter(None, (exact_gelu(config), norm)))


def pixtral_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json."""
    side = config.values.get("vision.patch", 16)
    return image_processor(
        "PixtralImageProcessor", config, OPENAI_MEAN, OPENAI_STD, resample=3,
        size={"longest_edge": config.values.get("vision.image_size", 1024)},
        patch_size={"height": side, "width": side},
    )  # fmt: skip


def pixtral_file(
    projector: str,
    *keys: Row,
    weights: tuple[Weight, ...] = (),
    accepts: Callable[[Config], bool] = lambda config: True,
    marker: str = "",
) -> Mmproj:
    """The file of a family; `keys`, `weights`: further ones; `accepts`, `marker`: as of `Mmproj`."""
    return Mmproj(
        projector,
        (
            *vision_keys(
                projector,
                Key("vision.image_size", (), "vision.image_size", kind=SIDE),
                Activation("gelu"),
                Fixed("eps", EPS, EPSILON),
            ),
            *keys,
        ),
        (
            *pixtral_weights(),
            *pair("projector.linear_1", "mm.1"),
            *pair("projector.linear_2", "mm.2", shape=(HIDDEN, HIDDEN)),
            *weights,
        ),
        kind=lambda config, weights: PIXTRAL,
        preparation=pixtral_preparation,
        stated=pixtral_stated,
        tokens={"image_token": "[IMG]"},
        misfit=pixtral_misfit,
        approximated=pixtral_approximated,
        accepts=accepts,
        token_rows={"v.token_embd.img_break": "[IMG_BREAK]"},
        marker=marker,
    )
