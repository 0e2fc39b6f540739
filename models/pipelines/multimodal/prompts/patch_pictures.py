"""Processor of pictures of any size: resized to a multiple of squares of patches and to a range of pixels, as flattened
patches with their grid."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import FormatError, UsageError
from .marked_pictures import MarkedPictures, token_text
from .patch_positions import GRID
from .prompt_rules import Arrays, PromptModel

MAX_RATIO, MAX_PIXELS = 200, 1 << 26
"""The longer edge by the shorter one at most, and the most pixels that a picture is resized to, whatever files say."""
SIZES = ("shortest_edge", "longest_edge")
"""Keys of `size` that hold the fewest and the most pixels."""


@dataclass(frozen=True)
class PatchRules:
    """How a family cuts pictures.

    Attributes:
        pixels: the fewest and the most pixels, where files do not state them.
        patch, frames, merge: edge of a patch, copies of the picture in time, and edge of the squares of patches, where
            files do not state them.
        squares: whether patches are in the order of squares, or else in rows.
        enlarged: whether pictures are first enlarged to the edge of a square.
    """

    pixels: tuple[int, int]
    patch: int = 14
    frames: int = 2
    merge: int = 2
    squares: bool = True
    enlarged: bool = False

    def stated(self, settings: Mapping[str, Any]) -> PatchRules:
        """With what preprocessor_config.json states. FormatError for invalid settings."""
        from ....preprocess.checked_settings import integer

        size = settings.get("size") or {}
        if not isinstance(size, Mapping):
            raise FormatError("E-PREPROCESSOR", None, "size must be an object", hint="Correct preprocessor_config.json")
        try:
            fewest, most = (
                integer(key, settings.get(key) or size.get(name) or default)
                for key, name, default in zip(("min_pixels", "max_pixels"), SIZES, self.pixels, strict=True)
            )
            patch, frames, merge = (
                integer(key, settings.get(key) or default)
                for key, default in (
                    ("patch_size", self.patch), ("temporal_patch_size", self.frames), ("merge_size", self.merge)
                )
            )  # fmt: skip
        except ValueError as error:
            why = f"invalid image processor: {error}"
            raise FormatError("E-PREPROCESSOR", None, why, hint="Correct preprocessor_config.json") from error
        return PatchRules((fewest, most), patch, frames, merge, self.squares, self.enlarged)

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """The size of a picture of a size. UsageError for one that is too narrow."""
        factor, (fewest, most) = self.patch * self.merge, self.pixels
        if self.enlarged and height < factor:
            height, width = factor, round(width * factor / height)
        if self.enlarged and width < factor:
            height, width = round(height * factor / width), factor
        if max(height, width) > MAX_RATIO * min(height, width):
            why = f"a picture of {width} x {height} is too narrow"
            raise UsageError("E-PICTURE-SIZE", None, why, expected=f"edges of at most 1 : {MAX_RATIO}")
        most = min(most, MAX_PIXELS)
        rows, columns = (round(edge / factor) * factor for edge in (height, width))
        if rows * columns > most:
            beta = math.sqrt(height * width / most)
            return tuple(max(factor, math.floor(edge / beta / factor) * factor) for edge in (height, width))  # type: ignore[return-value]
        if rows * columns < fewest:
            beta = math.sqrt(fewest / (height * width))
            return tuple(math.ceil(edge * beta / factor) * factor for edge in (height, width))  # type: ignore[return-value]
        return rows, columns

    def patches(self, pixels: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Patches f32 [rows x columns, values] of a picture [3, height, width], and its grid."""
        channels, height, width = pixels.shape
        patch, merge = self.patch, self.merge if self.squares else 1
        rows, columns = height // patch, width // patch
        cut = pixels.reshape(channels, rows // merge, merge, patch, columns // merge, merge, patch)
        ordered = cut.transpose(1, 4, 2, 5, 0, 3, 6)[..., None, :, :]
        copies = np.broadcast_to(ordered, (*ordered.shape[:5], self.frames, patch, patch))
        return copies.reshape(rows * columns, -1), [1, rows, columns]


def _expanded(model: PromptModel, images: Sequence[Any], *, rules: PatchRules) -> tuple[Arrays, list[str]]:
    """Patches and grids of all pictures, and the placeholders of each."""
    from ....preprocess.picture import picture_of
    from ....preprocess.stated_preparation import stated_preparation, stated_settings

    source = model.options.source
    preparation, own = stated_preparation(source), rules.stated(stated_settings(source))
    token, patches, grids, texts = token_text(model, "image_token"), [], [], []
    for each in images:
        image = picture_of(each, 3)
        height, width = own.resized(image.height, image.width)
        if (image.height, image.width) != (height, width):
            image = image.resize((width, height), preparation.filter)
        cut, grid = own.patches(preparation.normalized(np.asarray(image)))
        patches.append(cut)
        grids.append(grid)
        texts.append(token * (len(cut) // own.merge**2))
    return {"pixel_values": np.concatenate(patches), GRID: np.array(grids, np.int64)}, texts


def patch_pictures(rules: PatchRules, begin: str, end: str) -> MarkedPictures:
    """The processor of a family that has the tokens `begin` and `end` around pictures."""

    def before(text: str, markers: str) -> str:
        return re.sub(r"<\|[^|]*\|>", lambda marker: f"{begin}{marker[0]}{end}", markers) + text

    return MarkedPictures(functools.partial(_expanded, rules=rules), unmarked=before)
