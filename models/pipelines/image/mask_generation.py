"""Mask generation: masks of what points and boxes show, or of everything in a picture (Segment Anything).

Source: SamPredictor and SamAutomaticMaskGenerator of segment-anything (Kirillov et al. 2023, arXiv:2304.02643).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ...postprocess.run_lengths import RunLengthMask, run_lengths
from ...postprocess.segments import THRESHOLD, boxes_around, distinct, picture_masks, stability
from ...postprocess.small_regions import without_small_regions
from ...preprocess.image_processor import preparation_of
from ...preprocess.picture import Picture
from ...preprocess.placement import Placement
from ...preprocess.preparation import Preparation
from ...preprocess.stated_preparation import stated_preparation
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed, named_edges
from .promptable_model import MASKS, SCORES, Prompts

POINTS_AT_ONCE = 64
MASKS_AT_ONCE = 8
"""Masks that are scaled to the picture at once."""
SCORE, STABLE, GRID = 0.88, 0.95, 32
"""What masks of everything need by default, and points in each direction."""
Embeddings = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Everything:
    """Which masks of a whole picture are kept.

    Attributes:
        threshold: the predicted overlap with the true mask that they exceed.
        stability: the least overlap of a mask at a higher and at a lower threshold.
        iou: masks whose boxes overlap that of a better one by more are left out.
        grid: points in each direction.
        min_area: holes and islands of fewer pixels are removed; 0 leaves them.
    """

    threshold: float = SCORE
    stability: float = STABLE
    iou: float = 0.7
    grid: int = GRID
    min_area: int = 0


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


class MaskGeneration(ImagePipeline):
    """Cuts objects out of pictures."""

    @functools.cached_property
    def preparation(self) -> Preparation:
        """How pictures are prepared, as the model's files state it, else as segment-anything does."""
        _, height, width = self._model.image_shape
        sizes = {"size": {"longest_edge": max(height, width)}, "pad_size": {"height": height, "width": width}}
        usual = preparation_of({"image_processor_type": "SamImageProcessor", **sizes})
        return stated_preparation(self._model.options.source, usual)

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        points: Sequence[Sequence[float]] | None = None,
        boxes: Sequence[Sequence[float]] | None = None,
        threshold: float | None = None,
        stability: float | None = None,
        iou: float | None = None,
        grid: int | None = None,
        min_area: int | None = None,
        top: int | None = None,
        batch: int = 1,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``number``, ``score`` (the predicted overlap with the true mask), ``stability``, ``area`` in pixels, ``box``
        (``xmin``, ``ymin``, ``xmax``, ``ymax``, ends included) and ``mask`` (a `RunLengthMask`) of each object, the
        best first; a list for each of several pictures.

        Points show one object: three masks of a single point, which may mean a part or the whole, else one, which is
        the best of three with a decoder that Optimum exported. Boxes are an object each; one box may be given with
        points. Without points and boxes, masks of everything that a grid of points finds, with the ``point`` of each.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            points: x and y in pixels of the picture, and 1 (default) for points of the object or 0 for others.
            boxes: left, top, right and bottom in pixels of the picture.
            threshold: the score that masks exceed; None for 0.88 of everything, and any with prompts.
            stability: the least stability of masks of everything, None for 0.95.
            iou: masks of everything whose boxes overlap that of a better one by more are left out; None for 0.7.
            grid: points in each direction, None for 32.
            min_area: holes and islands of fewer pixels are removed from masks of everything.
            top: how many masks of a picture, None for all.
            batch: pictures that are encoded at once.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: told how many pictures are done.

        Raises UsageError for prompts that do not fit each other or the picture.
        """
        said = {"threshold": threshold, "stability": stability, "iou": iou, "grid": grid, "min_area": min_area}
        rules: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        shown = _shown(points, boxes)
        if shown is not None and rules.keys() - {"threshold"}:
            misplaced = ", ".join(sorted(rules.keys() - {"threshold"}))
            raise UsageError("E-OPTION", None, f"{misplaced}: for masks of everything, without points and boxes")
        single, pictures = listed(inputs)
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            for row, at in enumerate(seen.placements):
                embeddings = {name: array[row : row + 1] for name, array in seen.outputs.items()}
                if shown is None:
                    segments = self._everything(embeddings, at, Everything(**rules))
                else:
                    segments = self._shown(embeddings, at, shown, threshold)
                order = np.argsort(-segments.scores, kind="stable")[:top]
                found.append(_rows(segments.at(order)))
        return found[0] if single else found

    def _shown(
        self, embeddings: Embeddings, at: Placement, shown: tuple[np.ndarray, np.ndarray], threshold: float | None
    ) -> Segments:
        """Masks of the objects that points and boxes show."""
        points, boxes = shown
        height, width = at.size
        outside = (points[:, :2] < 0).any(-1) | (points[:, :2] > [width, height]).any(-1)
        if outside.any():
            x, y = points[outside][0, :2]
            why = f"the point {x:g}, {y:g} is outside of the picture"
            raise UsageError("E-PROMPT-POINT", None, why, expected=f"x up to {width} and y up to {height}")
        placed = at.to_input(points[None, None, :, :2]) if len(points) else None
        corners = at.to_input(boxes.reshape(1, -1, 2, 2)).reshape(1, -1, 4) if len(boxes) else None
        prompts = Prompts(placed, None if placed is None else points[None, None, :, 2], corners)
        several = len(points) == 1 and not len(boxes)
        outputs = self._model.decode(embeddings, prompts, multimask_output=several or not self._model.has_single_mask)
        logits, scores = outputs[MASKS][0].reshape(-1, *outputs[MASKS].shape[-2:]), outputs[SCORES].reshape(-1)
        if not several and not self._model.has_single_mask:
            best = scores.argmax(keepdims=True)
            logits, scores = logits[best], scores[best]
        rows = np.arange(len(scores)) if threshold is None else np.flatnonzero(scores > threshold)
        return _joined(list(_in_picture(logits[rows], scores[rows], at, 0.0)))

    def _everything(self, embeddings: Embeddings, at: Placement, rules: Everything) -> Segments:
        """Masks of what a grid of points finds, those that overlap a better one left out."""
        points = _grid_points(rules.grid) * at.size[::-1]
        parts: list[Segments] = []
        for start in range(0, len(points), POINTS_AT_ONCE):
            some = points[start : start + POINTS_AT_ONCE]
            prompts = Prompts(at.to_input(some)[None, :, None])
            outputs = self._model.decode(embeddings, prompts)
            scores = outputs[SCORES][0]
            asked, choice = np.nonzero(scores > rules.threshold)
            logits = outputs[MASKS][0, asked, choice]
            parts += _in_picture(logits, scores[asked, choice], at, rules.stability, some[asked])
        found = _joined(parts)
        found = found.at(distinct(found.boxes, found.scores, rules.iou))
        return _cleaned(found, rules) if rules.min_area else found


def _shown(
    points: Sequence[Sequence[float]] | None, boxes: Sequence[Sequence[float]] | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Points f32 [points, 3] with labels, and boxes f32 [boxes, 4]; None if there are neither."""
    if not points and not boxes:
        return None
    rows = [[*point, 1.0] if len(point) == 2 else [*point] for point in points or ()]
    corners = [[*box] for box in boxes or ()]
    if any(len(row) != 3 or row[2] not in (0, 1) or not np.isfinite(row).all() for row in rows):
        expected = "x, y and the label 1 or 0"
        raise UsageError("E-PROMPT-POINT", None, "not a point", expected=expected, found=str(points))
    if any(len(box) != 4 or not (box[0] < box[2] and box[1] < box[3]) for box in corners):
        raise UsageError("E-PROMPT-BOX", None, "not a box", expected="left < right and top < bottom", found=str(boxes))
    if rows and len(corners) > 1:
        why = "points show one object and cannot be given with several boxes"
        raise UsageError("E-PROMPT-BOX", None, why, hint="Give one box with the points, or boxes alone")
    return np.array(rows, np.float32).reshape(-1, 3), np.array(corners, np.float32).reshape(-1, 4)


def _grid_points(count: int) -> np.ndarray:
    """x and y in shares of the picture of `count` x `count` points, f64 [points, 2]."""
    places = np.linspace(1 / (2 * count), 1 - 1 / (2 * count), count)
    y, x = np.meshgrid(places, places, indexing="ij")
    return np.stack([x, y], -1).reshape(-1, 2)


def _in_picture(
    logits: np.ndarray, scores: np.ndarray, at: Placement, least: float, points: np.ndarray | None = None
) -> Iterator[Segments]:
    """Masks in the size of the picture, those of less stability than `least` left out."""
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


def _joined(parts: Sequence[Segments]) -> Segments:
    """All of the masks."""
    if not parts:
        return Segments([], np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros((0, 4), np.float32))
    points = None if parts[0].points is None else np.concatenate([each.points for each in parts])
    masks = [mask for each in parts for mask in each.masks]
    scores, stable, boxes = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("scores", "stability", "boxes")
    )
    return Segments(masks, scores, stable, boxes, points)


def _cleaned(segments: Segments, rules: Everything) -> Segments:
    """Masks without small holes and islands; of those that overlap then, unchanged ones are preferred."""
    pairs = [without_small_regions(np.asarray(mask), rules.min_area) for mask in segments.masks]
    boxes = [boxes_around(mask[None])[0] for mask, _ in pairs]
    masks = [run_lengths(mask) for mask, _ in pairs]
    unchanged = np.array([not changed for _, changed in pairs], np.float32)
    found = Segments(
        masks, segments.scores, segments.stability, np.array(boxes, np.float32).reshape(-1, 4), segments.points
    )
    return found.at(distinct(found.boxes, unchanged, rules.iou))


def _rows(segments: Segments) -> list[dict[str, Any]]:
    rows = []
    for place, mask in enumerate(segments.masks):
        row = {
            "number": place + 1,
            "score": float(segments.scores[place]),
            "stability": float(segments.stability[place]),
            "area": mask.area,
            "box": named_edges(map(int, segments.boxes[place])),
            "mask": mask,
        }
        if segments.points is not None:
            row["point"] = [round(float(each), 2) for each in segments.points[place]]
        rows.append(row)
    return rows


PIPELINE = MaskGeneration
