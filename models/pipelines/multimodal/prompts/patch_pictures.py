"""Processor of pictures of any size: flattened patches with their grid, and placeholders for squares of patches."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import FormatError
from .marked_pictures import MarkedPictures, token_text
from .patch_positions import GRID
from .prompt_rules import Arrays, PromptModel


@dataclass(frozen=True)
class PatchRules:
    """Settings with which a family cuts pictures into patches.

    Attributes:
        patch, frames, merge: edge of a patch, copies of the picture in time, and edge of the squares of patches, where
            files do not state them.
        squares: whether patches are in the order of squares, or else in rows.
    """

    patch: int = 14
    frames: int = 2
    merge: int = 2
    squares: bool = True

    def stated(self, settings: Mapping[str, Any]) -> PatchRules:
        """With what preprocessor_config.json states. FormatError for invalid settings."""
        from ....preprocess.checked_settings import integer

        keys = {"patch": "patch_size", "frames": "temporal_patch_size", "merge": "merge_size"}
        try:
            said: dict[str, Any] = {
                name: integer(key, settings[key]) for name, key in keys.items() if settings.get(key) is not None
            }
        except ValueError as error:
            why = f"invalid image processor: {error}"
            raise FormatError("E-PREPROCESSOR", None, why, hint="Correct preprocessor_config.json") from error
        return replace(self, **said)

    def patches(self, pixels: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Patches f32 [rows x columns, values] of a picture [3, height, width], and its grid. FormatError for a picture
        that they do not fill."""
        channels, height, width = pixels.shape
        patch, merge = self.patch, self.merge if self.squares else 1
        side = patch * merge
        if not height or not width or height % side or width % side:
            why = f"a prepared picture of {height} x {width} pixels is not made of squares of {side} pixels"
            hint = "Correct do_resize and image_processor_type in preprocessor_config.json"
            raise FormatError("E-PREPROCESSOR", None, why, hint=hint)
        rows, columns = height // patch, width // patch
        cut = pixels.reshape(channels, rows // merge, merge, patch, columns // merge, merge, patch)
        ordered = cut.transpose(1, 4, 2, 5, 0, 3, 6)[..., None, :, :]
        copies = np.broadcast_to(ordered, (*ordered.shape[:5], self.frames, patch, patch))
        return copies.reshape(rows * columns, -1), [1, rows, columns]


def _expanded(model: PromptModel, images: Sequence[Any], *, rules: PatchRules) -> tuple[Arrays, list[str]]:
    """Patches and grids of all pictures, and the placeholders of each."""
    from ....preprocess.stated_preparation import stated_preparation, stated_settings

    source = model.options.source
    preparation, own = stated_preparation(source), rules.stated(stated_settings(source))
    token, patches, grids, texts = token_text(model, "image_token"), [], [], []
    for image in images:
        cut, grid = own.patches(preparation.prepare(image).values)
        patches.append(cut)
        grids.append(grid)
        texts.append(token * (len(cut) // own.merge**2))
    return {"pixel_values": np.concatenate(patches), GRID: np.array(grids, np.int64)}, texts


def patch_pictures(rules: PatchRules, begin: str, end: str) -> MarkedPictures:
    """The processor of a family that has the tokens `begin` and `end` around pictures."""

    def before(text: str, markers: str) -> str:
        return re.sub(r"<\|[^|]*\|>", lambda marker: f"{begin}{marker[0]}{end}", markers) + text

    return MarkedPictures(functools.partial(_expanded, rules=rules), unmarked=before)
