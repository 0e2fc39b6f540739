"""Pictures that drawing begins with or follows: as numbers of the size of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ...preprocess.picture import picture_of
from .control_network import DOWN, MIDDLE, ControlNetwork
from .denoiser import DOWN_RESIDUALS, MIDDLE_RESIDUAL
from .text_to_image import Floats, Inputs


@dataclass(frozen=True)
class Source:
    """A picture to begin with.

    Attributes:
        pixels: f32 [1, 3, height, width] in -1 .. 1.
        mask: f32 [1, 1, height, width], 1 where the picture is redrawn and 0 where it stays; None for no mask.
        strength: the share of the steps that are done.
    """

    pixels: Floats
    mask: Floats | None
    strength: float


@dataclass(frozen=True)
class Control:
    """A ControlNet with its image and strength.

    Attributes:
        network: the ControlNet.
        pixels: f32 [1, 3, height, width] in 0 .. 1.
        strength: factor of what it adds.
    """

    network: ControlNetwork
    pixels: Floats
    strength: float

    def residuals(self, sample: Floats, timestep: Floats, inputs: Inputs) -> dict[str, Any]:
        """Inputs of the UNet, from those that it has besides."""
        known = {value.name: value.shape for value in self.network.graph.inputs}
        shape = known["sample"]
        channels = shape[1] if shape is not None and isinstance(shape[1], int) else sample.shape[1]
        others: dict[str, Any] = {name: item for name, item in inputs.items() if name in known}
        found = self.network(
            sample=sample[:, :channels],
            timestep=timestep,
            controlnet_cond=np.repeat(self.pixels, len(sample), 0),
            conditioning_scale=self.strength,
            **others,
        )
        return {DOWN_RESIDUALS: found[DOWN], MIDDLE_RESIDUAL: found[MIDDLE]}


def control_pixels(picture: Any, size: tuple[int, int]) -> Floats:
    """A picture for a ControlNet, resized to width and height: f32 [1, 3, height, width] in 0 .. 1."""
    from PIL import Image

    pixels = np.asarray(picture_of(picture).resize(size, Image.Resampling.LANCZOS), np.float32) / np.float32(255)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def source_of(image: Any, mask: Any, strength: float | None, size: tuple[int, int]) -> Source:
    """A picture and its mask, resized to width and height.

    Args:
        image, mask: a path, bytes, an array or an image of Pillow; None for no mask.
        strength: None for 0.8, and for 1 with a mask.

    Raises UsageError for a strength out of range, and for a mask of another size than the picture.
    """
    if strength is None:
        strength = 0.8 if mask is None else 1.0
    if not 0 < strength <= 1:
        raise UsageError(
            "E-OPTION", None, "strength is out of range", expected="more than 0, at most 1", found=strength
        )
    from PIL import Image

    picture = picture_of(image)
    pixels = np.asarray(picture.resize(size, Image.Resampling.LANCZOS), np.float32) / np.float32(127.5) - np.float32(1)
    planes = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
    if mask is None:
        return Source(planes, None, strength)
    cover = picture_of(mask, channels=1)
    if cover.size != picture.size:
        found, expected = (f"{each.width}x{each.height}" for each in (cover, picture))
        raise UsageError(
            "E-DRAW-MASK", None, "the mask has another size than the picture", expected=expected, found=found
        )
    covered = np.asarray(cover.resize(size, Image.Resampling.LANCZOS), np.float32) >= np.float32(127.5)
    return Source(planes, covered[None, None].astype(np.float32), strength)


def shrunk(mask: Floats, rows: int, columns: int) -> Floats:
    """A mask of the size of latents, by the nearest element."""
    _, _, height, width = mask.shape
    return mask[:, :, np.arange(rows) * height // rows][:, :, :, np.arange(columns) * width // columns]
