"""Transforms of timm: the `pretrained_cfg` of a model as a preparation, as timm prepares pictures for evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import FormatError
from .checked_settings import MAX_EDGE, integer, per_channel, positive
from .preparation import BICUBIC, BILINEAR, BOX, HAMMING, LANCZOS, NEAREST, Preparation, torchvision_half
from .resize_rules import Exact, Ratio, Rule, ShortestEdge

FILTERS = {
    "nearest": NEAREST,
    "bilinear": BILINEAR,
    "bicubic": BICUBIC,
    "box": BOX,
    "hamming": HAMMING,
    "lanczos": LANCZOS,
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP_FRACTION = 0.875


def timm_preparation(said: Mapping[str, Any], path: str | None = None) -> Preparation:
    """The preparation that `input_size`, `interpolation`, `crop_pct`, `crop_mode`, `mean` and `std` describe.

    Raises FormatError for invalid ones.
    """
    try:
        return _preparation(said)
    except (TypeError, ValueError) as error:
        why = f"invalid pretrained_cfg: {error}"
        raise FormatError("E-PREPROCESSOR", path, why, hint="Correct config.json") from error


def _preparation(said: Mapping[str, Any]) -> Preparation:
    channels, height, width = _input_size(said.get("input_size") or (3, 224, 224))
    fraction = positive("crop_pct", said.get("crop_pct") or CROP_FRACTION)
    scaled = math.floor(height / fraction), math.floor(width / fraction)
    if max(scaled) > MAX_EDGE:
        raise ValueError(f"crop_pct is {fraction}")
    mean = per_channel("mean", said.get("mean") or MEAN, channels)
    std = tuple(positive("std", each) for each in per_channel("std", said.get("std") or STD, channels))
    mode, name = said.get("crop_mode") or "center", said.get("interpolation") or "bicubic"
    if name not in FILTERS:
        raise ValueError(f"interpolation is {name!r}, expected {', '.join(FILTERS)}")
    return Preparation(
        resize=_rule(mode, *scaled),
        filter=FILTERS[name],
        crop=(height, width),
        halved=torchvision_half,
        fill=tuple(min(max(round(255 * each), 0), 255) for each in mean) if mode == "border" else (0,),
        factor=tuple(1 / 255 / each for each in std),
        shift=tuple(-each / divisor for each, divisor in zip(mean, std, strict=True)),
        channels=channels,
    )


def _rule(mode: str, height: int, width: int) -> Rule:
    if mode == "squash":
        return Exact(height, width)
    if mode == "border":
        return Ratio(height, width, inside=True)
    if mode != "center":
        raise ValueError(f"crop_mode is {mode!r}, expected center, squash or border")
    return ShortestEdge(height) if height == width else Ratio(height, width, inside=False)


def _input_size(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, list | tuple) or len(value) != 3 or value[0] not in (1, 3):
        raise ValueError(f"input_size is {value!r}, expected 1 or 3 channels, height and width")
    return value[0], integer("input_size", value[1]), integer("input_size", value[2])
