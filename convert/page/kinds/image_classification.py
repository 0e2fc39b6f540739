"""Image classification: the labels of a picture with their probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....models.pipelines.image.image_classification import class_count, image_labels
from ....models.pipelines.labels import is_multi_label
from ....models.schema.network_hyperparameters import IMAGE_CLASSIFICATION
from ..kind import Kind
from ..npm_packages import ONNXRUNTIME_WEB
from ..picture_preparation import preparation_of


def facts(model: Any) -> Mapping[str, Any]:
    """The preparation of pictures, whether they have several labels, and the names of labels if their count is
    known."""
    count = class_count(model)
    labels = {"labels": list(image_labels(model, count))} if isinstance(count, int) else {}
    return {**preparation_of(model), "several": is_multi_label(model.options), **labels}


KIND = Kind((IMAGE_CLASSIFICATION,), "Classify pictures", ONNXRUNTIME_WEB, facts=facts)
