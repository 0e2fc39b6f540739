"""Hyper-parameters in llama.cpp's files of encoders and projectors (mmproj)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import GGUF, Config, Key, Row
from ....runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, REAL, Integer, Listed, checked, flag
from ....runtime.contract.mmproj import PROJECTOR

SIDE, LAYERS = Integer(1, 1 << 16), Integer(1, 1 << 10)
CHANNELS = 3
MEAN, STD = "image_mean", "image_std"
"""Names of the channels' means and deviations, by which pictures are normalized; from preprocessor_config.json."""
EPS = "vision.attention.layer_norm_epsilon"
GELUS = ("gelu", "gelu_tanh")


@dataclass(frozen=True)
class Fixed:
    """A key with one value."""

    name: str
    key: str
    value: Any

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        return self.value

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: self.value} if names == GGUF else {}


@dataclass(frozen=True)
class SquareSize:
    """Hyper-parameter: height and width of pictures, of which files state one."""

    name: str = "vision.image_size"
    key: str = "vision.image_size"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        if source.get(self.key) is None:
            raise KeyError(self.key)
        side = checked(self.key, source.get(self.key), SIDE)
        return [side, side]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: config.values[self.name][0]}


@dataclass(frozen=True)
class Activation:
    """Hyper-parameter: activation of the encoder's feed-forward networks, by two switches; quick GELU without either.

    Attributes:
        gelu: the one that ``use_gelu`` stands for in files of transformers. llama.cpp computes the approximation by
            tanh.
    """

    gelu: str = "gelu_tanh"
    name: str = "vision.act"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        gelu, silu = (checked(key, source.get(key, False), flag) for key in ("use_gelu", "use_silu"))
        return self.gelu if gelu else "silu" if silu else "quick_gelu"

    def write(self, names: str, config: Config) -> dict[str, Any]:
        act = config.values[self.name]
        return {"use_silu": True} if act == "silu" else {"use_gelu": act in GELUS}


def vision_keys(
    projector: str, size: Row | None = None, act: Row | None = None, eps: Row | None = None
) -> tuple[Row, ...]:
    """The rows of encoders of pictures; `size`, `act`, `eps`: those that are not as of CLIP."""
    return (
        Fixed(PROJECTOR, PROJECTOR, projector),
        Fixed("has_vision_encoder", "has_vision_encoder", True),
        Key("text.hidden", (), "vision.projection_dim", kind=COUNT),
        size or SquareSize(),
        Key("vision.patch", (), "vision.patch_size", kind=SIDE),
        Key("vision.hidden", (), "vision.embedding_length", kind=COUNT),
        Key("vision.intermediate", (), "vision.feed_forward_length", kind=COUNT),
        Key("vision.layers", (), "vision.block_count", kind=LAYERS),
        Key("vision.heads", (), "vision.attention.head_count", kind=COUNT, at_most=("vision.hidden",)),
        eps or Key("vision.eps", (), EPS, kind=NOT_NEGATIVE),
        act or Activation(),
        Key(MEAN, (), "vision.image_mean", kind=Listed(REAL, CHANNELS, CHANNELS)),
        Key(STD, (), "vision.image_std", kind=Listed(POSITIVE, CHANNELS, CHANNELS)),
    )


def image_processor(kind: str, config: Config, mean: list[float], std: list[float], **further: Any) -> dict[str, Any]:
    """preprocessor_config.json of a class of transformers; `mean` and `std` where the file does not state them."""
    return {
        "image_processor_type": kind, "do_convert_rgb": True, "do_resize": True, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, MEAN: config.values.get(MEAN, mean),
        STD: config.values.get(STD, std), **further,
    }  # fmt: skip


def square(config: Config) -> bool:
    """Whether pictures of the trained size are squares."""
    size = config.values.get("vision.image_size")
    return not isinstance(size, list) or size[0] == size[1]


def other_activation(config: Config, name: str = "vision.act") -> str:
    """Why llama.cpp computes another activation; empty if it does not."""
    act = config.values.get(name)
    return "" if act in (*GELUS, "silu", "quick_gelu") else f"it has no activation {act} in image encoders"


def exact_gelu(config: Config, name: str = "vision.act") -> str:
    """A note on activations that llama.cpp approximates."""
    exact = [each for each in (name, "act") if config.values.get(each) == "gelu"]
    return "it computes GELU by its approximation with tanh, which differs by less than 0.001" if exact else ""


def grid_side(config: Config) -> int:
    """Patches along a side of the trained size."""
    side: int = config.values["vision.image_size"][0] // config.values["vision.patch"]
    return side


def side_of(tokens: int) -> int:
    """The side of a square of tokens."""
    return math.isqrt(tokens)
