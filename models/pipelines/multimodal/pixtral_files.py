"""Settings of Pixtral's processor next to exported graphs."""

from __future__ import annotations

from typing import Any

from ....runtime.contract.architecture import Config
from .exported_files import ExportedFiles
from .prompts.patch_rows import BREAK, END, MERGE


def pixtral_pictures(config: Config) -> dict[str, Any]:
    """Settings of the image processor by which sizes are divided."""
    return {"patch_size": config.values["vision.patch"], "spatial_merge_size": config.values.get(MERGE, 1)}


def pixtral_counts(config: Config) -> dict[str, Any]:
    """Settings with which the processor counts tokens."""
    marks = {"image_token": "[IMG]", "image_break_token": BREAK, "image_end_token": END}
    return {**marks, **pixtral_pictures(config)}


PIXTRAL_FILES = ExportedFiles("PixtralProcessor", pixtral_counts, pixtral_pictures)
