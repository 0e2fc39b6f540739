"""Mean average precision of object detectors, as defined by COCO.

Outputs and targets are read by name: ``boxes`` [samples, boxes, 4] as x1, y1, x2, y2; ``scores`` [samples, boxes] or
[samples, boxes, classes]; ``labels`` [samples, boxes], where a negative number marks a row without a box. Outputs may
also come in this order under other names.
Source: Lin et al. 2014, "Microsoft COCO", evaluation by 10 thresholds from 0.5 to 0.95, precision at 101 levels of
recall, 100 boxes a picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

THRESHOLDS = 10
RECALLS = 101
MOST = 100
NAMES = ("boxes", "scores", "labels")


@dataclass(frozen=True, eq=False)
class Matched:
    """The contribution of one image.

    Attributes:
        scores, labels: of the boxes found, the surest first.
        right: [thresholds, boxes], whether a box found is one of the targets.
        targets: how many boxes of each label there are to be found.
    """

    scores: np.ndarray
    labels: np.ndarray
    right: np.ndarray
    targets: dict[int, int]


def matches(outputs: Mapping[str, Any], targets: Mapping[str, Any]) -> list[Matched]:
    """Boxes found against boxes that are there, for each picture of a batch."""
    import numpy

    if "boxes" not in targets or "labels" not in targets:
        expected, found = "boxes, labels", ", ".join(targets) or "nothing"
        raise UsageError(
            "E-EVAL-TARGET", None, "the data has no boxes", expected=expected, found=found, hint="Put both into the npz"
        )
    named = outputs if set(NAMES[:2]) <= set(outputs) else dict(zip(NAMES, outputs.values(), strict=False))
    if "scores" not in named:
        why = "the model has no output with scores"
        raise UsageError("E-EVAL-TARGET", None, why, expected=", ".join(NAMES), found=", ".join(outputs))
    boxes, scores = numpy.asarray(named["boxes"], numpy.float64), numpy.asarray(named["scores"], numpy.float64)
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape[:2] != boxes.shape[:2]:
        why = "boxes and scores do not fit"
        raise UsageError("E-EVAL-SHAPE", None, why, expected="[n, k, 4] and [n, k]", found=[boxes.shape, scores.shape])
    if scores.ndim == 3:
        labels, scores = scores.argmax(axis=2), scores.max(axis=2)
    else:
        labels = numpy.asarray(named.get("labels", numpy.zeros(scores.shape)), numpy.int64)
    right, kinds = numpy.asarray(targets["boxes"], numpy.float64), numpy.asarray(targets["labels"], numpy.int64)
    return [_picture(*one) for one in zip(boxes, scores, labels, right, kinds, strict=True)]


def _picture(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, right: np.ndarray, kinds: np.ndarray
) -> Matched:
    import numpy

    right, kinds = right[kinds >= 0], kinds[kinds >= 0]
    order = numpy.argsort(-scores, kind="stable")
    order = order[labels[order] >= 0]
    kept = numpy.concatenate([order[labels[order] == label][:MOST] for label in numpy.unique(labels[order])] or [order])
    order = kept[numpy.argsort(-scores[kept], kind="stable")]
    boxes, scores, labels = boxes[order], scores[order], labels[order]
    overlaps = _overlaps(boxes, right) * (labels[:, None] == kinds[None, :])
    found = numpy.zeros((THRESHOLDS, len(boxes)), bool)
    for level in range(THRESHOLDS):
        least, taken = min(0.5 + 0.05 * level, 1 - 1e-10), numpy.zeros(len(right), bool)
        for index in range(len(boxes)):
            free = numpy.where(taken, -1.0, overlaps[index])
            best = int(free.argmax()) if free.size else -1
            if best >= 0 and free[best] >= least:
                taken[best] = found[level, index] = True
    names, counts = numpy.unique(kinds, return_counts=True)
    return Matched(scores, labels, found, dict(zip(names.tolist(), counts.tolist(), strict=True)))


def _overlaps(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union of every pair."""
    import numpy

    low = numpy.maximum(one[:, None, :2], other[None, :, :2])
    high = numpy.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = numpy.clip(high - low, 0, None).prod(axis=2)
    areas = [(each[:, 2:] - each[:, :2]).prod(axis=1) for each in (one, other)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return numpy.where(union > 0, shared / numpy.where(union > 0, union, 1), 0.0)


def average_precision(pictures: Sequence[Matched], thresholds: int = THRESHOLDS) -> float:
    """The mean over classes that occur and over the first `thresholds`; NaN where there is nothing to be found."""
    import numpy

    classes = sorted({label for picture in pictures for label in picture.targets})
    found = [_class(pictures, label, thresholds) for label in classes]
    return float(numpy.mean(found)) if found else float("nan")


def _class(pictures: Sequence[Matched], label: int, thresholds: int) -> float:
    import numpy

    total = sum(picture.targets.get(label, 0) for picture in pictures)
    mine = [picture.labels == label for picture in pictures]
    scores = numpy.concatenate([picture.scores[chosen] for picture, chosen in zip(pictures, mine, strict=True)])
    right = numpy.concatenate(
        [picture.right[:, chosen] for picture, chosen in zip(pictures, mine, strict=True)], axis=1
    )
    right = right[:thresholds, numpy.argsort(-scores, kind="stable")]
    if not right.size:
        return 0.0
    hits = right.cumsum(axis=1)
    precision = hits / numpy.arange(1, right.shape[1] + 1)
    precision = numpy.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    levels = numpy.linspace(0, 1, RECALLS)
    at = [numpy.searchsorted(row / total, levels, side="left") for row in hits]
    padded = numpy.concatenate([precision, numpy.zeros((len(precision), 1))], axis=1)
    return float(numpy.mean([row[places] for row, places in zip(padded, at, strict=True)]))
