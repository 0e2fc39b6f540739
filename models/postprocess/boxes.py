"""Boxes: corners, scales, and suppression of those that overlap a better one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ops.image.non_max_suppression import non_max_suppression
from ...runtime.base.dataclass import dataclass


@dataclass(frozen=True)
class Boxes:
    """Objects found in a picture, the most certain first.

    Attributes:
        corners: f32 [count, 4]: x0, y0, x1, y1 in pixels.
        scores: f32 [count].
        classes: int64 [count].
        points: f32 [count, points, 3]: x, y and visibility of key points; None without.
    """

    corners: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    points: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def at(self, rows: np.ndarray) -> Boxes:
        """Some of them."""
        points = None if self.points is None else self.points[rows]
        return Boxes(self.corners[rows], self.scores[rows], self.classes[rows], points)


def corners_of(centers: np.ndarray) -> np.ndarray:
    """Boxes [..., 4] given as center x, center y, width, height as x0, y0, x1, y1."""
    middle, half = centers[..., :2], centers[..., 2:] / 2
    return np.concatenate([middle - half, middle + half], -1)


def scored(corners: np.ndarray, scores: np.ndarray, threshold: float, points: np.ndarray | None = None) -> Boxes:
    """The boxes [count, 4] whose best class exceeds the threshold, by scores [count, classes]."""
    classes = scores.argmax(-1)
    best = np.take_along_axis(scores, classes[:, None], -1)[:, 0]
    kept = np.flatnonzero(best > threshold)
    kept = kept[np.argsort(-best[kept], kind="stable")]
    chosen = None if points is None else points[kept]
    return Boxes(corners[kept].astype(np.float32), best[kept].astype(np.float32), classes[kept], chosen)


def of_classes(boxes: Boxes, classes: Sequence[int] | None) -> Boxes:
    """The boxes of some classes; all for None."""
    return boxes if classes is None else boxes.at(np.flatnonzero(np.isin(boxes.classes, list(classes))))


def suppressed(boxes: Boxes, iou: float, most: int, *, by_class: bool = True) -> Boxes:
    """The boxes that overlap no better one by more than `iou`, `most` of them; by ONNX's NonMaxSuppression.

    Args:
        by_class: whether boxes of different classes may overlap.
    """
    if not len(boxes):
        return boxes
    compute = non_max_suppression.compute
    assert compute is not None
    groups = np.unique(boxes.classes) if by_class else np.zeros(1, np.int64)
    member = boxes.classes[None] == groups[:, None] if by_class else np.ones((1, len(boxes)), bool)
    scores = np.where(member, boxes.scores, -1).astype(np.float32)
    limits = np.array([len(boxes)]), np.array([iou], np.float32), np.array([0], np.float32)
    kept = compute(boxes.corners[None], scores[None], *limits)[:, 2]
    return boxes.at(np.sort(kept)[:most])
