"""Object detection: labeled boxes in pictures, with key points where the model finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from ...postprocess.boxes import Boxes
from ...postprocess.detections import Choice, darknet_boxes, focal_boxes, queried_boxes, yolo_boxes
from ...preprocess.picture import Picture
from ...preprocess.placement import Placement
from ...preprocess.preparation import Preparation
from ...preprocess.ultralytics_export import export_of
from ..labels import configured, label_names
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed, named_edges

RAW = "output0"
"""The output of an export of ultralytics."""
QUERIES, YOLO, DARKNET = ("logits", "pred_boxes"), ("boxes_xywh", "scores"), ("boxes_xywh", "objectness_and_scores")
"""Names of outputs by kind of detector."""
OUTPUTS = tuple(dict.fromkeys(names) for names in (QUERIES, YOLO, DARKNET))
CERTAIN, LIKELY = 0.5, 0.25
"""Thresholds of scores by default: of detectors with queries, as in transformers, and of YOLO, as in ultralytics."""


class ObjectDetection(ImagePipeline):
    """Finds objects."""

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        threshold: float | None = None,
        iou: float = 0.7,
        classes: Sequence[str] | None = None,
        top: int | None = None,
        batch: int = 1,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``label``, ``score`` and ``box`` (``xmin``, ``ymin``, ``xmax``, ``ymax`` in pixels) of each object, and
        ``keypoints`` [[x, y, visibility], ...] of models that find them, the most certain first; a list for each of
        several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            threshold: the score that objects exceed; None for 0.5, or 0.25 with YOLO.
            iou: objects of YOLO that overlap a better one of their class by more are left out.
            classes: labels, or their numbers, that are wanted; None for all.
            top: how many objects of a picture, None for all.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            names = self._names(seen.outputs)
            limit = (CERTAIN if "pred_boxes" in seen.outputs else LIKELY) if threshold is None else threshold
            choice = Choice(limit, iou, _numbers(classes, names))
            for row, at in enumerate(seen.placements):
                boxes = _boxes({name: array[row] for name, array in seen.outputs.items()}, len(names), at, choice)
                found.append(_rows(boxes, names)[:top])
        return found[0] if single else found

    def _names(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        """The labels. Models with queries have a logit for none, too, unless the files name as many labels as there are
        logits."""
        if outputs.keys() >= set(QUERIES):
            count = outputs["logits"].shape[-1]
            named = configured(self._model.options).get("id2label")
            return label_names(self._model.options, count - (not named or len(named) != count))
        source = self._model.options.source
        export = None if source is None else export_of(source.metadata)
        if export is not None and RAW in outputs:
            return list(export.labels)
        for kind, axis, others in ((YOLO, 1, 0), (DARKNET, -1, 1)):
            if outputs.keys() >= set(kind):
                count = outputs[kind[1]].shape[axis] - others
                if export is not None and len(export.labels) == count:
                    return list(export.labels)
                return label_names(self._model.options, count)
        expected = ", or ".join(" and ".join(names) for names in (QUERIES, YOLO, DARKNET))
        raise UsageError("E-MODEL-OUTPUT", None, "the model has no boxes", expected=expected, found=", ".join(outputs))


def _boxes(outputs: Mapping[str, np.ndarray], classes: int, at: Placement, choice: Choice) -> Boxes:
    """Boxes of one picture."""
    if "pred_boxes" in outputs:
        found = focal_boxes if outputs["logits"].shape[-1] == classes else queried_boxes
        return found(outputs["logits"], outputs["pred_boxes"], at.size, choice)
    if RAW in outputs:
        return yolo_boxes(outputs[RAW], classes, at, choice)
    if "scores" in outputs:
        parts = [outputs[name] for name in (*YOLO, "keypoints") if name in outputs]
        return yolo_boxes(np.concatenate(parts), classes, at, choice)
    return darknet_boxes(np.concatenate([outputs[name] for name in DARKNET], -1), at, choice)


def _numbers(wanted: Sequence[str] | None, names: Sequence[str]) -> list[int] | None:
    if wanted is None:
        return None
    numbers = []
    for each in wanted:
        number = names.index(each) if each in names else int(each) if str(each).isdecimal() else -1
        if not 0 <= number < len(names):
            hint = did_you_mean(str(each), names, f"The model has {len(names)} classes, such as {names[0]}")
            raise UsageError("E-MODEL-CLASS", None, f"the model has no class {each!r}", hint=hint)
        numbers.append(number)
    return numbers


def _rows(boxes: Boxes, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for index in range(len(boxes)):
        corners = (round(float(edge), 2) for edge in boxes.corners[index])
        row = {
            "label": names[int(boxes.classes[index])],
            "score": float(boxes.scores[index]),
            "box": named_edges(corners),
        }
        if boxes.points is not None:
            row["keypoints"] = [[round(float(each), 3) for each in point] for point in boxes.points[index]]
        rows.append(row)
    return rows


PIPELINE = ObjectDetection
