"""Segments: masks of Segment Anything in the size of the picture, their stability, and the best ones that differ.

Source: segment-anything (Kirillov et al. 2023), and the image processor of transformers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..preprocess.placement import Placement
from ..preprocess.resize_rules import Size
from .boxes import Boxes, suppressed
from .maps import interpolated
from .run_lengths import RunLengthMask, run_lengths
from .small_regions import without_small_regions

THRESHOLD = 0.0
"""Logits of masks are above it inside."""
OFFSET = 1.0
"""Shift of the threshold when stability is measured."""
MASKS_AT_ONCE = 8
"""Masks that are scaled to the picture at once."""
EDGE = 20
"""Boxes of a crop this close to its edge, in pixels, show a part of an object."""


@dataclass(frozen=True)
class Segments:
    """Masks of a picture, by rows of arrays.

    Attributes:
        masks: the masks.
        scores: f32 [count]: predicted overlap with the true mask.
        stability: f32 [count].
        boxes: f32 [count, 4]: x0, y0, x1, y1, ends included.
        points: f32 [count, 2]: x and y of the point that gave the mask; None for those of prompts.
    """

    masks: list[RunLengthMask]
    scores: np.ndarray
    stability: np.ndarray
    boxes: np.ndarray
    points: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> Segments:
        """Some of them."""
        points = None if self.points is None else self.points[rows]
        masks = [self.masks[row] for row in rows]
        return Segments(masks, self.scores[rows], self.stability[rows], self.boxes[rows], points)

    def placed(self, crop: tuple[int, int, int, int], size: Size) -> Segments:
        """Segments of a crop x0, y0, x1, y1 moved to the picture of a height and width, without those that the crop
        cuts off."""
        corner, edges = np.array(crop[:2], np.float32), np.array(crop, np.float32)
        boxes = self.boxes + np.tile(corner, 2)
        near, outer = (np.abs(boxes - each) <= EDGE for each in (edges, np.array((0, 0, *size[::-1]), np.float32)))
        whole = self.at(np.flatnonzero(~(near & ~outer).any(1)))
        x0, y0, x1, y1 = crop
        masks = []
        for mask in whole.masks:
            canvas = np.zeros(size, bool)
            canvas[y0:y1, x0:x1] = np.asarray(mask)
            masks.append(run_lengths(canvas))
        points = None if whole.points is None else whole.points + corner
        return dataclasses.replace(whole, masks=masks, boxes=whole.boxes + np.tile(corner, 2), points=points)


def concatenated(parts: Sequence[Segments]) -> Segments:
    """All of the masks."""
    if not parts:
        return Segments([], np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros((0, 4), np.float32))
    points = None if parts[0].points is None else np.concatenate([part.points for part in parts])
    masks = [mask for part in parts for mask in part.masks]
    scores, stable, boxes = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "stability", "boxes")
    )
    return Segments(masks, scores, stable, boxes, points)


def in_picture(
    logits: np.ndarray, scores: np.ndarray, at: Placement, least: float, points: np.ndarray | None = None
) -> Iterator[Segments]:
    """Masks [count, height, width] in the size of the picture, those of less stability than `least` left out."""
    for start in range(0, len(logits), MASKS_AT_ONCE):
        rows = np.arange(start, min(len(logits), start + MASKS_AT_ONCE))
        scaled = picture_masks(logits[rows], at)
        stable = stability(scaled)
        kept = np.flatnonzero(stable >= least)
        inside = scaled[kept] > THRESHOLD
        yield Segments(
            [run_lengths(mask) for mask in inside],
            scores[rows[kept]],
            stable[kept],
            boxes_around(inside),
            None if points is None else points[rows[kept]],
        )


def cleaned(segments: Segments, min_area: int, iou: float) -> Segments:
    """Masks without holes and islands of fewer than `min_area` pixels; of those whose boxes overlap by more than `iou`
    then, unchanged ones are preferred."""
    pairs = [without_small_regions(np.asarray(mask), min_area) for mask in segments.masks]
    boxes = [boxes_around(mask[None])[0] for mask, _ in pairs]
    masks = [run_lengths(mask) for mask, _ in pairs]
    unchanged = np.array([not changed for _, changed in pairs], np.float32)
    found = dataclasses.replace(segments, masks=masks, boxes=np.array(boxes, np.float32).reshape(-1, 4))
    return found.at(distinct(found.boxes, unchanged, iou))


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
    for index, mask in enumerate(masks):
        if mask.any():
            y, x = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            found[index] = x[0], y[0], x[-1], y[-1]
    return found


def distinct(boxes: np.ndarray, scores: np.ndarray, iou: float) -> np.ndarray:
    """The numbers of the masks whose boxes overlap no better one by more than `iou`, the best first."""
    order = np.argsort(-scores, kind="stable")
    ranked = Boxes(boxes[order], np.linspace(1, 0.5, len(order), dtype=np.float32), order)
    return suppressed(ranked, iou, len(order), by_class=False).classes
