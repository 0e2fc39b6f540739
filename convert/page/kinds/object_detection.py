"""Object detection: boxes around the objects of a picture, with labels and, where the model finds them, key points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....models.pipelines.image.object_detection import DARKNET
from ....models.preprocess.ultralytics_export import export_of
from ....models.schema.network_hyperparameters import OBJECT_DETECTION
from ....runtime.base.errors import UnsupportedError
from ..kind import Kind
from ..npm_packages import ONNXRUNTIME_WEB
from ..picture_preparation import preparation_of


def facts(model: Any) -> Mapping[str, Any]:
    """The preparation of pictures, and the labels of an export of ultralytics. UnsupportedError for YOLO v3."""
    if any(output.name == DARKNET[-1] for output in model.graph.outputs):
        path = next(iter(model.graph.files), None)
        hint = "candle-convert predict runs the model"
        raise UnsupportedError("E-PAGE-MODEL", path, "pages run no YOLO v3", hint=hint)
    source = model.options.source
    export = None if source is None else export_of(source.metadata)
    labels = {} if export is None else {"labels": list(export.labels)}
    return {**preparation_of(model), **labels}


KIND = Kind((OBJECT_DETECTION,), "Find objects", ONNXRUNTIME_WEB, facts=facts)
