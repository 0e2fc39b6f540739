"""The preparation of pictures as JSON, for the script that prepares them in the browser."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...models.pipelines.image.image_model import ImageModel
from ...models.pipelines.task_model import PIPELINES
from ...models.preprocess.preparation import Preparation, torchvision_half
from ...models.preprocess.size_nodes import RULES
from ...runtime.base.errors import UnsupportedError


def preparation_of(model: Any) -> Mapping[str, Any]:
    """How pictures are prepared for a model, with the fields of `Preparation`.

    UnsupportedError for sizes that the script does not compute, and for models that prepare pictures themselves.
    """
    path = next(iter(model.graph.files), None)
    if isinstance(model, ImageModel) and model.takes_bytes:
        hint = "Make the page of a model that was exported without --with-preprocessing"
        raise UnsupportedError("E-PAGE-PREPARATION", path, "the model prepares pictures itself", hint=hint)
    preparation = PIPELINES.load(model.task.replace("-", "_"))(model).preparation
    rule = preparation.resize
    if (rule is not None and type(rule) not in RULES) or preparation.channels != 3:
        why = f"resizing by the rule {type(rule).__name__}" if preparation.channels == 3 else "preparing grey pictures"
        hint = "candle-convert predict runs the model"
        raise UnsupportedError("E-PAGE-PREPARATION", path, f"{why} is not written for pages", hint=hint)
    return {"preparation": preparation_json(preparation)}


def preparation_json(preparation: Preparation) -> dict[str, Any]:
    """The fields of a preparation; rules and crops are called by name."""
    rule = preparation.resize
    said = {name: getattr(preparation, name) for name in ("filter", "crop", "fill", "factor", "shift", "bgr")}
    return {
        **said,
        "resize": None if rule is None else {"rule": type(rule).__name__, **dataclasses.asdict(rule)},  # type: ignore[call-overload]
        "halved": "torchvision" if preparation.halved is torchvision_half else "floor",
        "padding": None if preparation.padding is None else dataclasses.asdict(preparation.padding),
    }
