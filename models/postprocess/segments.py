"""Segments: masks of Segment Anything in the size of the picture, their stability, and the best ones that differ.

Source: segment-anything (Kirillov et al. 2023), and the image processor of transformers.
"""

from __future__ import annotations

import numpy as np

from ..preprocess.placement import Placement
from .boxes import Boxes, suppressed
from .maps import interpolated

THRESHOLD = 0.0
"""Logits of masks are above it inside."""
OFFSET = 1.0
"""How far the threshold moves when stability is measured."""


def picture_masks(logits: np.ndarray, at: Placement) -> np.ndarray:
    """Logits of masks [count, height, width] in the size of the picture: scaled to the model's input, of which padding
    is cut off, then to the picture."""
    rows, columns = at.window
    return interpolated(interpolated(logits, at.input)[:, rows, columns], at.size)


def stability(logits: np.ndarray) -> np.ndarray:
    """For each mask [count, height, width] the overlap of what it is at a higher and at a lower threshold; 0 for empty
    masks."""
    inner = (logits > THRESHOLD + OFFSET).sum((1, 2))
    outer = (logits > THRESHOLD - OFFSET).sum((1, 2))
    return np.divide(inner, outer, out=np.zeros(len(logits), np.float64), where=outer > 0).astype(np.float32)


def boxes_around(masks: np.ndarray) -> np.ndarray:
    """x0, y0, x1, y1 of each mask [count, height, width], ends included; zeros for empty masks."""
    found = np.zeros((len(masks), 4), np.float32)
    for place, mask in enumerate(masks):
        if mask.any():
            y, x = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            found[place] = x[0], y[0], x[-1], y[-1]
    return found


def distinct(boxes: np.ndarray, scores: np.ndarray, iou: float) -> np.ndarray:
    """The numbers of the masks whose boxes overlap no better one by more than `iou`, the best first."""
    order = np.argsort(-scores, kind="stable")
    ranked = Boxes(boxes[order], np.linspace(1, 0.5, len(order), dtype=np.float32), order)
    return suppressed(ranked, iou, len(order), by_class=False).classes
