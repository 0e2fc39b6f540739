"""PaddleOCR-VL's encoder and projector in llama.cpp's files (mmproj)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config, Row, Stored, Weight
from ....runtime.contract.hyperparameter import Integer, checked
from ....runtime.tensor.stored_tensor import StoredTensor
from ..weight_layout import Reshaped
from .keys import image_processor, vision_keys
from .siglip import HALF
from .vit import BLOCK, HIDDEN, pair

MERGE, CHANNELS = 2, 3
LEAST, MOST = 147_384, 2_822_400
"""Pixels of pictures in the released model."""
PATCHES = f"{CHANNELS}*vision.patch*vision.patch"
IMAGE = Reshaped(("vision.hidden", PATCHES), ("vision.hidden", CHANNELS, "vision.patch", "vision.patch"))
POSITIONS = "vision.positions.weight"
NAME = "vision.blocks.{i}."
LAYER = {
    "norm1": "ln1", "attn.q": "attn_q", "attn.k": "attn_k", "attn.v": "attn_v", "attn.o": "attn_out", "norm2": "ln2",
    "mlp.up": "ffn_up", "mlp.down": "ffn_down",
}  # fmt: skip


@dataclass(frozen=True)
class Pixels:
    """Hyper-parameter: the least or the most pixels of a picture, from preprocessor_config.json.

    Attributes:
        older: its key there in older files; newer ones have it in the object ``size``.
    """

    name: str
    key: str
    older: str
    usual: int

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        count: int = checked(self.key, source.get(self.key, self.usual), Integer(1))
        return count

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: _pixels(config, self)}


SHORTEST = Pixels("shortest_edge", "vision.image_min_pixels", "min_pixels", LEAST)
LONGEST = Pixels("longest_edge", "vision.image_max_pixels", "max_pixels", MOST)


def _pixels(config: Config, which: Pixels) -> int:
    stated = config.values.get("preparation") or {}
    size = stated.get("size")
    nested = size.get(which.name) if isinstance(size, Mapping) else None
    return int(nested or stated.get(which.older) or which.usual)


@dataclass(frozen=True)
class PictureSize:
    """The size of the largest square, as llama.cpp's converter states it; the trained one is that of positions."""

    name: str = "picture_size"
    key: str = "vision.image_size"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> None:
        return None

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: math.isqrt(_pixels(config, LONGEST))}


def paddleocr_keys(projector: str) -> tuple[Row, ...]:
    """Rows of the image encoder's hyper-parameters for a projector type of llama.cpp."""
    return (*vision_keys(projector, PictureSize()), SHORTEST, LONGEST)


def paddleocr_weights() -> tuple[Weight, ...]:
    """The rows of encoder and projector."""
    return (
        Weight(POSITIONS, gguf="v.position_embd.weight"),
        Weight("vision.patch_embed.weight", gguf=Stored(("v.patch_embd.weight",), IMAGE)),
        Weight("vision.patch_embed.bias", gguf="v.patch_embd.bias"),
        *(row for own, name in LAYER.items() for row in pair(f"{NAME}{own}", f"{BLOCK}{name}")),
        *pair("vision.norm", "v.post_ln"),
        *pair("projector.norm", "mm.input_norm"),
        *pair("projector.up", "mm.1"),
        *pair("projector.down", "mm.2", shape=(HIDDEN, "4*vision.hidden")),
    )


def paddleocr_stated(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Hyper-parameters without a key: the image size that positions were trained on."""
    side = math.isqrt(weights[POSITIONS].shape[0])
    return {
        "vision.image_size": side * config.values["vision.patch"],
        "vision.merge": MERGE,
        "vision.channels": CHANNELS,
    }


def paddleocr_misfit(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """The difference to llama.cpp's computation, empty if none."""
    if config.values["vision.merge"] != MERGE or config.values["vision.channels"] != CHANNELS:
        return f"it makes a token of {MERGE} x {MERGE} patches of {CHANNELS} channels"
    return "" if config.values["vision.act"] in ("gelu", "gelu_tanh") else "its encoder has GELU alone"


def paddleocr_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json."""
    return image_processor(
        "PaddleOCRVLImageProcessor", config, HALF, HALF, resample=3, patch_size=config.values.get("vision.patch", 14),
        merge_size=MERGE, temporal_patch_size=1,
        size={each.name: config.values.get(each.name, each.usual) for each in (SHORTEST, LONGEST)},
    )  # fmt: skip
