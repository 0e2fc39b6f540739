"""Pictures that drawing begins with: as numbers of the size of the result, with a mask of what is drawn anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ...preprocess.picture import picture_of
from .text_to_image import Floats


@dataclass(frozen=True)
class Source:
    """A picture to begin with.

    Attributes:
        pixels: f32 [1, 3, height, width] in -1 .. 1.
        mask: f32 [1, 1, height, width], 1 where the picture is drawn anew and 0 where it stays; None for no mask.
        strength: the share of the steps that are done.
    """

    pixels: Floats
    mask: Floats | None
    strength: float


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
