"""Pixtral's processor: pictures of any size, whose rows of tokens end with a break each, the last one with an end. A
token stands for a patch, or for a square of `merge` x `merge` patches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.contract.architecture import Config
from ....preprocess.resize_rules import PatchGrid
from .marked_pictures import token_text
from .prompt_rules import Arrays, PromptModel, Run, flattened

SIZES = "image_sizes"
"""The array i64 [pictures, 2] of heights and widths, of pictures that are padded to one size."""
MERGE = "merge"
"""The hyper-parameter of families whose tokens are squares of patches: patches along a side."""
BREAK, END = "[IMG_BREAK]", "[IMG_END]"


def encoded_by_size(run: Run, config: Config, arrays: Arrays) -> dict[str, np.ndarray]:
    """Features of pictures one after another, each without its padding; of all at once without their sizes."""
    pixels, sizes = arrays["pixel_values"], arrays.get(SIZES)
    if sizes is None:
        return flattened(run, config, arrays)
    largest = pixels.shape[2:]
    if sizes.shape != (len(pixels), 2) or sizes.dtype.kind not in "iu" or (sizes < 1).any() or (sizes > largest).any():
        why = f"{SIZES} must have a height and a width for each picture, within those of pixel_values"
        raise UsageError("E-RUN-SHAPE", None, why, expected=[len(pixels), 2], found=list(sizes.shape))
    rows = [
        flattened(run, config, {"pixel_values": picture[None, :, :height, :width]})
        for picture, (height, width) in zip(pixels, sizes.tolist(), strict=True)
    ]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def patch_rows(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Pixels padded to the largest picture, sizes, and the placeholders of each picture."""
    from ....preprocess.stated_preparation import stated_preparation, stated_settings

    config, source = model.options.config, model.options.source
    assert config is not None
    side = config.values["vision.patch"] * config.values.get(MERGE, 1)
    preparation = stated_preparation(source)
    if isinstance(preparation.resize, PatchGrid):
        preparation = dataclasses.replace(preparation, resize=dataclasses.replace(preparation.resize, patch=side))
    prepared = [preparation.prepare(image).values for image in images]
    sizes = np.array([values.shape[1:] for values in prepared], np.int64)
    pixels = np.zeros((len(prepared), 3, *sizes.max(0)), np.float32)
    for row, values in zip(pixels, prepared, strict=True):
        row[:, : values.shape[1], : values.shape[2]] = values
    said: Mapping[str, Any] = stated_settings(source, "processor_config.json")
    after, last = said.get("image_break_token", BREAK), said.get("image_end_token", END)
    token = token_text(model, "image_token")
    texts = []
    for height, width in sizes.tolist():
        lines = [token * (width // side)] * (height // side)
        texts.append(after.join(lines) + last)
    return {"pixel_values": pixels, SIZES: sizes}, texts
