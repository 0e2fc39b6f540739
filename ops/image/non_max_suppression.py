"""NonMaxSuppression: the best boxes of each class, without boxes that overlap a better one."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..rules.shape_rules import shape_error

BOXES = np.array(
    [
        [
            [0, 0, 1, 1],
            [0, 0.1, 1, 1.1],
            [1, 1.1, 0, 0.1],
            [0, -0.1, 1, 0.9],
            [0, 10, 1, 11],
            [0, 10.1, 1, 11.1],
            [0, 100, 1, 101],
        ]
    ],
    np.float32,
)
SCORES = np.array([[[0.9, 0.75, 0.75, 0.6, 0.95, 0.5, 0.3], [0.1, 0.2, 0.3, 0.8, 0.7, 0.75, 0.05]]], np.float32)


def _infer(node: Inference) -> None:
    node.set(0, I64, (None, 3))


@op(
    "NonMaxSuppression",
    since=11,
    types="f32 f32 i64 f32 f32",
    traits=(Trait.KEEPS_F32,),
    infer=_infer,
    examples=[
        case(BOXES, SCORES, np.array([3]), np.array([0.5], np.float32), np.array([0.1], np.float32)),
        case(BOXES, SCORES, np.array([9]), np.array([0.5], np.float32), center_point_box=1),
        case(BOXES, SCORES),
        case(BOXES, SCORES, np.array([2]), None, np.array([0.7], np.float32)),
        case(np.zeros((1, 0, 4), np.float32), np.zeros((1, 2, 0), np.float32), np.array([3])),
    ],
)
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
    *,
    center_point_box: int = 0,
) -> np.ndarray:
    """From boxes [n, count, 4] and scores [n, classes, count] to rows (image, class, box), best first; of equal scores
    the first box."""
    if (
        boxes.ndim != 3
        or scores.ndim != 3
        or boxes.shape[2] != 4
        or (len(boxes), boxes.shape[1]) != (len(scores), scores.shape[2])
    ):
        raise shape_error("NonMaxSuppression", f"boxes {boxes.shape} do not fit scores {scores.shape}")
    most, overlap = _single(max_output_boxes_per_class, 0), _single(iou_threshold, 0)
    least = _single(score_threshold, -np.inf)
    chosen: list[tuple[int, int, int]] = []
    for image, count in enumerate(scores.shape[1:2] * len(boxes)):
        low, high = _corners(boxes[image], bool(center_point_box))
        area = np.prod(high - low, axis=1)
        for kind in range(count if most > 0 else 0):
            score = scores[image, kind]
            order = np.argsort(-score, kind="stable")
            if score_threshold is not None:
                order = order[score[order] > least]
            chosen += [(image, kind, box) for box in _kept(order, low, high, area, int(most), float(overlap))]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _single(limit: np.ndarray | None, default: float) -> np.number | float:
    if limit is not None and limit.size != 1:
        raise shape_error("NonMaxSuppression", f"a limit of shape {limit.shape} is not one number")
    return default if limit is None else limit.reshape(-1)[0]


def _corners(boxes: np.ndarray, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    one, other = boxes[:, :2], boxes[:, 2:]
    if centred:
        return one - other / 2, one + other / 2
    return np.minimum(one, other), np.maximum(one, other)


def _kept(
    order: np.ndarray, low: np.ndarray, high: np.ndarray, area: np.ndarray, most: int, overlap: float
) -> list[int]:
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        extent = np.minimum(high[order], high[best]) - np.maximum(low[order], low[best])
        common = np.prod(np.maximum(extent, 0), axis=1)
        union = area[order] + area[best] - common
        touches = (common > 0) & (area[order] > 0) & (area[best] > 0) & (union > 0)
        with np.errstate(all="ignore"):
            order = order[~(touches & (common / union > np.float32(overlap)))]
    return kept
