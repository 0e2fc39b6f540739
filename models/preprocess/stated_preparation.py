"""The preparation that the files of a model state: preprocessor_config.json, `pretrained_cfg` of timm, OpenCLIP's
`preprocess_cfg`, or the metadata of an export of ultralytics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import Config
from ...runtime.ir.graph import Graph
from ..tokenizer.readers.locate import json_value
from .image_processor import preparation_of
from .open_clip_transform import FILE, open_clip_preparation
from .preparation import Preparation, letterbox
from .timm_transform import MEAN, STD, timm_preparation
from .ultralytics_export import export_of

FILES = ("preprocessor_config.json", "processor_config.json")
CONFIG, TIMM = "config.json", "pretrained_cfg"
LETTERBOX = "letterbox"
"""Hyper-parameter: height and width."""


def preparation_from(said: Mapping[str, Any], path: str | None = None) -> Preparation | None:
    """The preparation of one JSON file; None for files that are not about pictures."""
    if isinstance(said.get(TIMM), Mapping):
        return timm_preparation(said[TIMM], path)
    if "model_cfg" in said:
        return open_clip_preparation(said, path)
    inner = said.get("image_processor")
    marks = ("image_processor_type", "feature_extractor_type", "image_mean", "do_normalize", "do_resize", "size")
    if isinstance(inner, Mapping) or any(mark in said for mark in marks):
        return preparation_of(said, path)
    return timm_preparation(said, path) if "input_size" in said else None


IMAGENET_FILE = {
    "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 256}, "resample": 2,
    "do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD),
}  # fmt: skip
"""preprocessor_config.json of ImageNet's classifiers."""


def imagenet_preparation(size: tuple[int, int] = (224, 224)) -> Preparation:
    """As torchvision evaluates classifiers of ImageNet: the middle of the picture, 7/8 of its shorter edge, resized to
    a height and width."""
    return timm_preparation({"input_size": [3, *size], "interpolation": "bilinear"})


def letterbox_of(config: Config | None) -> Preparation | None:
    """The preparation by hyper-parameters: a letterbox of the height and width ``letterbox``; None without."""
    size = None if config is None else config.values.get(LETTERBOX)
    return None if size is None else letterbox(*size)


def _settings(source: Graph, name: str) -> Mapping[str, Any]:
    """A JSON object next to the weights, empty if missing."""
    found = json_value(source, name, "E-CONFIG-JSON")
    return found if isinstance(found, dict) else {}


def stated_settings(source: Graph | None, *names: str) -> Mapping[str, Any]:
    """The settings of a file next to the weights, `names` or those of image processors; the inner object where one
    holds those of the picture's. Empty if missing."""
    for name in names or FILES:
        found = {} if source is None else _settings(source, name)
        if found:
            inner = found.get("image_processor")
            return inner if isinstance(inner, Mapping) and not names else found
    return {}


def states_preparation(source: Graph | None) -> bool:
    """Whether the files of a model state a preparation; FormatError for an invalid one."""
    return source is not None and _stated(source) is not None


def _stated(source: Graph) -> Preparation | None:
    """The preparation that the files of a model state, None if none does."""
    path = source.files[0] if source.files else None
    for name in FILES:
        found = preparation_from(_settings(source, name), path)
        if found is not None:
            return found
    export = export_of(source.metadata)
    if export is not None:
        return letterbox(*export.size)
    config = _settings(source, CONFIG)
    if isinstance(config.get(TIMM), Mapping):
        return timm_preparation(config[TIMM], path)
    return preparation_from(_settings(source, FILE), path)


def stated_preparation(source: Graph | None, otherwise: Preparation | None = None) -> Preparation:
    """The preparation that the files of a model state, else `otherwise`. UnsupportedError if there is none."""
    path = source.files[0] if source is not None and source.files else None
    found = (None if source is None else _stated(source)) or otherwise
    if found is not None:
        return found
    raise UnsupportedError(
        "E-PREPROCESSOR-NONE",
        path,
        "no preprocessor_config.json: image size, mean and std are unknown",
        hint="Pass --preprocessor FILE or imagenet, or put preprocessor_config.json into the model's folder",
    )
