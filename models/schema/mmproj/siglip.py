"""SigLIP encoders with pooled or folded patches in llama.cpp's files (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config
from ....runtime.contract.hyperparameter import checked
from .keys import SIDE, grid_side, image_processor, side_of

HALF = [0.5, 0.5, 0.5]
FACTOR, USUAL = "vision.projector.scale_factor", 4
LONGEST = "longest_edge"
"""Name of the longest edge of a picture before it is split, from preprocessor_config.json."""


@dataclass(frozen=True)
class PooledTokens:
    """Hyper-parameter: tokens of a picture, of which files state how many patches along a side become one, unless these
    are 4."""

    name: str = "tokens"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        side: int = grid_side(config) // checked(FACTOR, source.get(FACTOR, USUAL), SIDE)
        return side * side

    def write(self, names: str, config: Config) -> dict[str, Any]:
        factor = grid_side(config) // side_of(config.tokens)
        return {} if factor == USUAL else {FACTOR: factor}


@dataclass(frozen=True)
class LongestEdge:
    """Hyper-parameter: the longest edge of pictures before they are split into tiles."""

    name: str = LONGEST
    key: str = "vision.preproc_image_size"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        side: int = checked(self.key, source.get(self.key, config.values["vision.image_size"][0]), SIDE)
        return side

    def write(self, names: str, config: Config) -> dict[str, Any]:
        size = config.values["preparation"].get("size")
        stated = size.get(LONGEST) if isinstance(size, Mapping) else None
        return {self.key: stated or config.values["vision.image_size"][0]}


def pooled_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json of Gemma 3."""
    size = (config.values.get("vision.image_size") or [896])[0]
    return image_processor(
        "Gemma3ImageProcessor", config, HALF, HALF, size={"height": size, "width": size}, resample=2,
        image_seq_length=config.values.get("tokens", 256),
    )  # fmt: skip


def tiled_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json of SmolVLM."""
    tile = (config.values.get("vision.image_size") or [512])[0]
    return image_processor(
        "SmolVLMImageProcessor", config, HALF, HALF, size={LONGEST: config.values.get(LONGEST, 4 * tile)},
        max_image_size={LONGEST: tile}, do_image_splitting=True, do_pad=True, resample=1,
    )  # fmt: skip
