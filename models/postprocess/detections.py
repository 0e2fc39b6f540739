"""Detections: boxes from the outputs of models with queries (DETR and its successors) and of YOLO networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..preprocess.placement import Placement
from ..preprocess.resize_rules import Size
from .boxes import Boxes, corners_of, of_classes, scored, suppressed

CANDIDATES, MOST = 30000, 300
"""Boxes that are compared at most, and that are returned at most, as in ultralytics."""


@dataclass(frozen=True)
class Choice:
    """Filters for boxes.

    Attributes:
        threshold: scores are above it.
        iou: boxes that overlap a better one by more are left out.
        classes: numbers of classes; None for all.
        most: boxes of a picture.
    """

    threshold: float = 0.25
    iou: float = 0.7
    classes: Sequence[int] | None = None
    most: int = MOST


def queried_boxes(logits: np.ndarray, centers: np.ndarray, size: Size, choice: Choice) -> Boxes:
    """Boxes of DETR and YOLOS: `post_process_object_detection` of transformers.

    Args:
        logits: [queries, classes + 1], the last class being none.
        centers: [queries, 4]: center x, center y, width, height as shares of the picture.
        size: height and width of the picture.
    """
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    scores = (exponents / exponents.sum(-1, keepdims=True))[:, :-1]
    found = scored(_scaled(centers, size), scores, choice.threshold)
    return of_classes(found, choice.classes).at(slice(choice.most))  # type: ignore[arg-type]


def focal_boxes(logits: np.ndarray, centers: np.ndarray, size: Size, choice: Choice) -> Boxes:
    """Boxes of detectors whose classes exclude no other (Deformable and Conditional DETR, RT-DETR, D-FINE): as many of
    the most certain pairs of a query and a class as there are queries, by `post_process_object_detection` of
    transformers.

    Args:
        logits: [queries, classes].
        centers, size: as in `queried_boxes`.
    """
    with np.errstate(over="ignore"):
        scores = (1 / (1 + np.exp(-logits))).astype(np.float32).reshape(-1)
    best = np.argsort(-scores, kind="stable")[: len(logits)]
    best = best[scores[best] > choice.threshold]
    queries, classes = np.divmod(best, logits.shape[1])
    corners = _scaled(centers, size)[queries].astype(np.float32)
    return of_classes(Boxes(corners, scores[best], classes), choice.classes).at(slice(choice.most))  # type: ignore[arg-type]


def _scaled(centers: np.ndarray, size: Size) -> np.ndarray:
    """Corners in pixels of boxes whose center, width and height are shares of a picture."""
    height, width = size
    return corners_of(centers) * np.array([width, height, width, height], np.float32)


def yolo_boxes(predictions: np.ndarray, classes: int, at: Placement, choice: Choice) -> Boxes:
    """Boxes of YOLO v8 and its successors, in the pixels of the picture.

    Args:
        predictions: [4 + classes + 3 * points, anchors]: center x, center y, width, height in the model's input, scores
            in 0 to 1, and x, y and visibility of key points.
        classes: the number of classes.
        at: where the picture lies in the input.
    """
    rows = predictions.T
    scores = rows[:, 4 : 4 + classes]
    points = rows[:, 4 + classes :].reshape(len(rows), -1, 3) if rows.shape[1] > 4 + classes else None
    return _in_picture(corners_of(rows[:, :4]), scores, points, at, choice)


def darknet_boxes(predictions: np.ndarray, at: Placement, choice: Choice) -> Boxes:
    """Boxes of YOLO v3, in the pixels of the picture.

    Args:
        predictions: [anchors, 5 + classes]: center x, center y, width, height in the model's input, objectness, and
            scores of classes, both in 0 to 1.
        at: where the picture lies in the input.
    """
    scores = predictions[:, 4:5] * predictions[:, 5:]
    return _in_picture(corners_of(predictions[:, :4]), scores, None, at, choice)


def _in_picture(
    corners: np.ndarray, scores: np.ndarray, points: np.ndarray | None, at: Placement, choice: Choice
) -> Boxes:
    found = of_classes(scored(corners, scores, choice.threshold, points), choice.classes)
    found = suppressed(found.at(slice(CANDIDATES)), choice.iou, choice.most)  # type: ignore[arg-type]
    placed = None
    if found.points is not None:
        placed = found.points.astype(np.float32)
        placed[..., :2] = at.to_picture(placed[..., :2])
    return Boxes(at.boxes_to_picture(found.corners).astype(np.float32), found.scores, found.classes, placed)
