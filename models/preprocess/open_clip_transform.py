"""Transforms of OpenCLIP: the `preprocess_cfg` of an open_clip_config.json as a preparation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import FormatError
from .checked_settings import integer
from .preparation import Preparation
from .timm_transform import timm_preparation

FILE = "open_clip_config.json"
MODES = {"shortest": "center", "longest": "border", "squash": "squash"}
"""Values of `resize_mode`, with timm's `crop_mode` of the same effect."""
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of the pictures that CLIP was trained with."""


def open_clip_preparation(said: Mapping[str, Any], path: str | None = None) -> Preparation:
    """The preparation that `preprocess_cfg` and `image_size` describe, as OpenCLIP prepares pictures for evaluation.

    Raises FormatError for invalid ones.
    """
    model, stated = (_object(said, key, path) for key in ("model_cfg", "preprocess_cfg"))
    size = stated.get("size", _object(model, "vision_cfg", path).get("image_size", 224))
    mode, color = stated.get("resize_mode") or "shortest", stated.get("fill_color") or 0
    if mode not in MODES:
        raise _invalid(f"resize_mode is {mode!r}, expected {', '.join(MODES)}", path)
    said = {
        "input_size": [3, *size] if isinstance(size, list) else [3, size, size],
        "crop_pct": 1.0,
        "crop_mode": MODES[mode],
        "interpolation": stated.get("interpolation"),
        "mean": stated.get("mean") or MEAN,
        "std": stated.get("std") or STD,
    }
    try:
        fill = integer("fill_color", color, 255) if color else 0
    except ValueError as error:
        raise _invalid(str(error), path) from error
    return dataclasses.replace(timm_preparation(said, path), fill=(fill,))


def _object(said: Mapping[str, Any], key: str, path: str | None) -> Mapping[str, Any]:
    found = {} if said.get(key) is None else said[key]
    if not isinstance(found, Mapping):
        raise _invalid(f"{key} is not an object", path)
    return found


def _invalid(why: str, path: str | None) -> FormatError:
    return FormatError("E-PREPROCESSOR", path, f"invalid {FILE}: {why}", hint=f"Correct {FILE}")
