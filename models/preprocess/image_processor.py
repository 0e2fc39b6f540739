"""Image processors of transformers: a preprocessor_config.json as a preparation.

Files leave out what their class has by default; `KINDS` has the defaults of each class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError
from .checked_settings import finite, integer, per_channel, positive
from .preparation import BICUBIC, BILINEAR, HAMMING, LANCZOS, Padding, Preparation
from .resize_rules import (
    Divisible,
    EdgesWithin,
    Exact,
    LongestEdge,
    Multiples,
    PatchGrid,
    PixelRange,
    Rule,
    ShortestEdge,
    Within,
)

HALF = (0.5, 0.5, 0.5)
IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}
CLIP = {"image_mean": (0.48145466, 0.4578275, 0.40821073), "image_std": (0.26862954, 0.26130258, 0.27577711)}
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A class of image processors.

    Attributes:
        defaults: settings that its files may leave out.
        square: whether a single number as size is that of both edges, or else of the shorter one.
        rule: makes the resize rule from all settings, where the class has its own.
        crops: the crop that belongs to that rule.
        masked: whether padding is to the largest picture of a batch, with a mask.
    """

    defaults: Settings
    square: bool = True
    rule: Callable[[Settings], Rule] | None = None
    crops: Callable[[Settings], tuple[int, int] | None] | None = None
    masked: bool = False


def preparation_of(settings: Settings, path: str | None = None) -> Preparation:
    """The preparation that a preprocessor_config.json describes.

    Raises UnsupportedError for classes that do more than to resize, crop, pad and normalize, FormatError for invalid
    settings.
    """
    inner = settings.get("image_processor")
    settings = inner if isinstance(inner, Mapping) else settings
    kind = _kind(settings, path)
    try:
        return _preparation(kind, _with_defaults(kind, settings))
    except (KeyError, TypeError, ValueError) as error:
        why = f"invalid image processor: {error}"
        raise FormatError("E-PREPROCESSOR", path, why, hint="Correct preprocessor_config.json") from error


def stated_settings(settings: Settings) -> dict[str, Any]:
    """The settings of a preprocessor_config.json with the defaults of its class, and sizes as objects.

    Raises UnsupportedError for other classes, ValueError and TypeError for invalid sizes.
    """
    kind = _kind(settings, None)
    said = _with_defaults(kind, settings)
    for name, square in (("size", kind.square), ("crop_size", True)):
        if not isinstance(said[name], Mapping):
            said[name] = _sizes(said, name, square=square)
    return said


def _with_defaults(kind: Kind, settings: Settings) -> dict[str, Any]:
    said = {**BASE, **kind.defaults, **{name: value for name, value in settings.items() if value is not None}}
    for switch in ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad"):
        if settings.get(switch, said.get(switch)) is None:
            said[switch] = kind.defaults.get(switch, False)
    return said


def _preparation(kind: Kind, said: Settings) -> Preparation:
    factor, shift = _affine(said)
    crop = None
    rule: Rule | None = None
    if said["do_resize"]:
        rule = _rule(kind, said)
        crop = kind.crops(said) if kind.crops is not None else None
    if said["do_center_crop"] and crop is None:
        crop = _box(_sizes(said, "crop_size", square=True))
    number = said["resample"]
    if number not in range(BILINEAR - 2, HAMMING + 1) or isinstance(number, bool):
        raise ValueError(f"resample is {number!r}, expected 0 to {HAMMING}")
    return Preparation(
        resize=rule,
        filter=number,
        crop=crop,
        factor=factor,
        shift=shift,
        bgr=said.get("do_flip_channel_order") is True,
        padding=_padding(kind, said),
    )


def _kind(settings: Settings, path: str | None) -> Kind:
    """The class that a file names, or one without any specialties if it names none."""
    said = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if not isinstance(said, str):
        return Kind({})
    name = said.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
    found = KINDS.get(name.removesuffix("ImageProcessor"))
    if found is None:
        raise UnsupportedError(
            "E-PREPROCESSOR-KIND",
            path,
            f"pictures are prepared by {said!r}, which is not supported",
            hint=f"Supported: {', '.join(f'{each}ImageProcessor' for each in KINDS)}",
        )
    return found


def _affine(said: Settings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Factor and shift of each channel that rescaling and normalization come to."""
    scale = finite("rescale_factor", said["rescale_factor"]) if said["do_rescale"] else 1.0
    offset = 1.0 if said["do_rescale"] and said.get("rescale_offset") is True else 0.0
    mean, std = (per_channel(name, said[name], 3) for name in ("image_mean", "image_std"))
    if not said["do_normalize"]:
        mean, std = (0.0,) * 3, (1.0,) * 3
    twice = said.get("include_top") is True
    divisors = tuple(positive("image_std", value) ** (2 if twice and said["do_normalize"] else 1) for value in std)
    factor = tuple(scale / divisor for divisor in divisors)
    return factor, tuple(-(offset + value) / each for value, each in zip(mean, divisors, strict=True))


def _rule(kind: Kind, said: Settings) -> Rule:
    if kind.rule is not None:
        return kind.rule(said)
    size = _sizes(said, "size", square=kind.square)
    names = size.keys()
    if {"height", "width"} <= names:
        return Exact(*_box(size))
    if {"shortest_edge", "longest_edge"} <= names:
        return EdgesWithin(size["shortest_edge"], size["longest_edge"])
    if "shortest_edge" in names:
        return ShortestEdge(size["shortest_edge"])
    if {"max_height", "max_width"} <= names:
        return Within(size["max_height"], size["max_width"])
    raise ValueError(f"size has {', '.join(names)}, expected height and width, or shortest_edge")


def _padding(kind: Kind, said: Settings) -> Padding | None:
    if not said["do_pad"]:
        return None
    divisor = integer("size_divisor", said["size_divisor"]) if said.get("size_divisor") is not None else 1
    if said.get("pad_size") is not None:
        return Padding(_box(_sizes(said, "pad_size", square=True)), divisor, masked=kind.masked)
    if kind.masked:
        return Padding(None, divisor, masked=True)
    return Padding(None, divisor, centered=True) if divisor > 1 else None


def _sizes(said: Settings, name: str, *, square: bool) -> dict[str, int]:
    """A size as a dictionary; older files have a number or a list."""
    value = said[name]
    if isinstance(value, Mapping):
        found = {key: edge for key, edge in value.items() if edge is not None}
    elif isinstance(value, list | tuple) and len(value) == 2:
        found = {"height": value[0], "width": value[1]}
    else:
        edge = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
        found = {"height": edge, "width": edge} if square else {"shortest_edge": edge}
        if not square and said.get("max_size") is not None:
            found["longest_edge"] = said["max_size"]
    if not found:
        raise ValueError(f"{name} is empty")
    return {key: integer(f"{name}.{key}", edge) for key, edge in found.items()}


def _box(size: Mapping[str, int]) -> tuple[int, int]:
    if "shortest_edge" in size and "height" not in size:
        return size["shortest_edge"], size["shortest_edge"]
    return size["height"], size["width"]


def _fraction(said: Settings) -> float:
    value = positive("crop_pct", said["crop_pct"])
    if value > 1:
        raise ValueError(f"crop_pct is {value}, expected 1 at most")
    return value


def _convnext(said: Settings) -> Rule:
    """Below 384 pixels the picture is resized to size / crop_pct, of which the middle is cut out."""
    length = _sizes(said, "size", square=False)["shortest_edge"]
    return ShortestEdge(int(length / _fraction(said))) if length < 384 else Exact(length, length)


def _convnext_crop(said: Settings) -> tuple[int, int] | None:
    length = _sizes(said, "size", square=False)["shortest_edge"]
    return (length, length) if length < 384 else None


def _levit(said: Settings) -> Rule:
    size = _sizes(said, "size", square=False)
    return ShortestEdge(int((256 / 224) * size["shortest_edge"])) if "shortest_edge" in size else Exact(*_box(size))


def _poolformer(said: Settings) -> Rule:
    height, width = _box(_sizes(said, "size", square=False))
    lengths = tuple(int(length / _fraction(said)) for length in (height, width))
    return ShortestEdge(lengths[0]) if height == width else Exact(*lengths)


def _dpt(said: Settings) -> Rule:
    multiple = integer("ensure_multiple_of", said["ensure_multiple_of"])
    return Multiples(*_box(_sizes(said, "size", square=True)), multiple, said["keep_aspect_ratio"] is True)


def _yolos(said: Settings) -> Rule:
    size = _sizes(said, "size", square=False)
    if {"shortest_edge", "longest_edge"} <= size.keys():
        return EdgesWithin(size["shortest_edge"], size["longest_edge"], multiple=16)
    return Exact(*_box(size))


def _sam(said: Settings) -> Rule:
    return LongestEdge(_sizes({"size": said["size"]}, "size", square=False)["longest_edge"])


SIZES = ("shortest_edge", "longest_edge")
"""Keys of `size` that hold the fewest and the most pixels of pictures as patches."""
MAX_PIXELS = 1 << 26


def _pixel_range(said: Settings, *, enlarged: bool = False) -> Rule:
    size = said["size"]
    fewest, most = (
        integer(key, said.get(key) or size[name], MAX_PIXELS)
        for key, name in zip(("min_pixels", "max_pixels"), SIZES, strict=True)
    )
    patch, merge = (integer(key, said.get(key, usual)) for key, usual in (("patch_size", 14), ("merge_size", 2)))
    return PixelRange(patch * merge, fewest, most, enlarged)


def _pixtral(said: Settings) -> Rule:
    size, patch = _sizes(said, "size", square=True), _box(_sizes(said, "patch_size", square=True))
    longest = (size["longest_edge"],) * 2 if "longest_edge" in size else _box(size)
    return PatchGrid(*longest, patch[0])


BASE = {
    "do_resize": True, "do_center_crop": False, "do_rescale": True, "do_normalize": True, "do_pad": False,
    "size": {"height": 224, "width": 224}, "crop_size": {"height": 224, "width": 224}, "resample": BILINEAR,
    "rescale_factor": 1 / 255, "image_mean": HALF, "image_std": HALF,
}  # fmt: skip
"""Settings of a class that names no others."""
PLAIN = Kind({})
CLIPPED = Kind({**CLIP, "size": {"shortest_edge": 224}, "do_center_crop": True, "resample": BICUBIC}, square=False)
DETR = Kind(
    {**IMAGENET, "size": {"shortest_edge": 800, "longest_edge": 1333}, "max_size": 1333, "do_pad": True},
    square=False,
    masked=True,
)
MOBILENET = Kind({"size": {"shortest_edge": 256}, "do_center_crop": True}, square=False)
IMAGENET_PLAIN = Kind({**IMAGENET, "resample": BICUBIC})
TILED = Kind({"size": {"longest_edge": 4 * 364}, "resample": LANCZOS}, rule=_sam)
KINDS: Mapping[str, Kind] = {
    "Beit": Kind({"resample": BICUBIC}),
    "Bit": CLIPPED,
    "Blip": Kind({**CLIP, "size": {"height": 384, "width": 384}, "resample": BICUBIC}),
    "CLIP": CLIPPED,
    "ChineseCLIP": CLIPPED,
    "ConditionalDetr": DETR,
    "ConvNext": Kind(
        {"size": {"shortest_edge": 384}, "crop_pct": 224 / 256, "resample": BICUBIC},
        square=False,
        rule=_convnext,
        crops=_convnext_crop,
    ),
    "DINOv3ViT": Kind(IMAGENET),
    "DPT": Kind(
        {
            "size": {"height": 384, "width": 384},
            "resample": BICUBIC,
            "ensure_multiple_of": 1,
            "keep_aspect_ratio": False,
        },
        rule=_dpt,
    ),
    "DeformableDetr": DETR,
    "DeiT": Kind({"size": {"height": 256, "width": 256}, "do_center_crop": True, "resample": BICUBIC}),
    "Detr": DETR,
    "EfficientNet": Kind(
        {
            "size": {"height": 346, "width": 346},
            "crop_size": {"height": 289, "width": 289},
            "resample": BICUBIC,
            "include_top": True,
        }
    ),
    "GLPN": Kind(
        {"do_normalize": False, "size_divisor": 32},
        rule=lambda said: Divisible(integer("size_divisor", said["size_divisor"])),
    ),
    "GroundingDino": DETR,
    "Gemma3": PLAIN,
    "Idefics3": TILED,
    "Levit": Kind(
        {**IMAGENET, "size": {"shortest_edge": 224}, "do_center_crop": True, "resample": BICUBIC},
        square=False,
        rule=_levit,
    ),
    "MobileNetV1": MOBILENET,
    "MobileNetV2": MOBILENET,
    "MobileViT": Kind(
        {
            "size": {"shortest_edge": 224},
            "crop_size": {"height": 256, "width": 256},
            "do_center_crop": True,
            "do_normalize": False,
            "do_flip_channel_order": True,
            "resample": BICUBIC,
        },
        square=False,
    ),
    "OwlViT": Kind(
        {**CLIP, "size": {"height": 768, "width": 768}, "crop_size": {"height": 768, "width": 768}, "resample": BICUBIC}
    ),
    "Pixtral": Kind(
        {**CLIP, "size": {"longest_edge": 1024}, "patch_size": {"height": 16, "width": 16}, "resample": BICUBIC},
        rule=_pixtral,
    ),
    "PaddleOCRVL": Kind(
        {**CLIP, "do_center_crop": False, "size": {SIZES[0]: 384 * 384, SIZES[1]: 1536 * 1536}, "resample": BICUBIC},
        rule=functools.partial(_pixel_range, enlarged=True),
    ),
    "PoolFormer": Kind(
        {**IMAGENET, "size": {"shortest_edge": 224}, "crop_pct": 0.9, "do_center_crop": True, "resample": BICUBIC},
        square=False,
        rule=_poolformer,
    ),
    "Pvt": IMAGENET_PLAIN,
    "Qwen2VL": Kind(
        {**CLIP, "do_center_crop": False, "size": {SIZES[0]: 56 * 56, SIZES[1]: 28 * 28 * 1280}, "resample": BICUBIC},
        rule=_pixel_range,
    ),
    "RTDetr": Kind({**IMAGENET, "size": {"height": 640, "width": 640}, "do_normalize": False}, masked=True),
    "Sam": Kind(
        {**IMAGENET, "size": {"longest_edge": 1024}, "do_pad": True, "pad_size": {"height": 1024, "width": 1024}},
        rule=_sam,
    ),
    "Segformer": Kind({**IMAGENET, "size": {"height": 512, "width": 512}}),
    "SegGpt": Kind({**IMAGENET, "size": {"height": 448, "width": 448}, "resample": BICUBIC}),
    "Siglip": Kind({"resample": BICUBIC}, square=False),
    "SmolVLM": TILED,
    "ViT": PLAIN,
    "ViTHybrid": CLIPPED,
    "Yolos": Kind(DETR.defaults, square=False, rule=_yolos, masked=True),
}
"""Classes of transformers by their names without ``ImageProcessor``."""
