"""Mask generation: masks of what points and boxes show, or of everything in a picture (Segment Anything).

Source: SamPredictor and SamAutomaticMaskGenerator of segment-anything (Kirillov et al. 2023, arXiv:2304.02643).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ...postprocess.segments import Segments, cleaned, concatenated, distinct, in_picture
from ...preprocess.image_processor import preparation_of
from ...preprocess.picture import Picture, picture_of
from ...preprocess.picture_crops import crops_of
from ...preprocess.placement import Placement
from ...preprocess.preparation import Preparation
from ...preprocess.stated_preparation import stated_preparation
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed, named_edges
from .promptable_model import MASKS, SCORES, Prompts

if TYPE_CHECKING:
    from PIL.Image import Image

POINTS_AT_ONCE = 64
FARTHEST = 1e9
"""Pixels between a picture's corner and a prompt: more would leave the range of f32 on the way to the model's input."""
MOST_LAYERS = 4
"""Layers of crops: the last one has 256."""
Embeddings = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Everything:
    """Filters for the masks of a whole picture.

    Attributes:
        threshold: the predicted overlap with the true mask that they exceed.
        stability: the least overlap of a mask at a higher and at a lower threshold.
        iou: masks whose boxes overlap that of a better one by more are left out; of several crops those of smaller ones
            are better.
        grid: points in each direction.
        min_area: holes and islands of fewer pixels are removed; 0 leaves them.
        crop_layers: layers of crops that are searched besides the whole picture; layer i has 4^i crops.
        crop_overlap: of the crops in layer 1, as a share of the picture's shorter side.
        crop_divisor: crops of layer i have `grid` / `crop_divisor`^i points in each direction.
    """

    threshold: float = 0.88
    stability: float = 0.95
    iou: float = 0.7
    grid: int = 32
    min_area: int = 0
    crop_layers: int = 0
    crop_overlap: float = 512 / 1500
    crop_divisor: int = 1

    def __post_init__(self) -> None:
        rules = (
            ("grid", self.grid >= 1, "1 or more"),
            ("crop_layers", 0 <= self.crop_layers <= MOST_LAYERS, f"0 to {MOST_LAYERS}"),
            ("crop_overlap", 0 <= self.crop_overlap < 1, "0 or more, and less than 1"),
            ("crop_divisor", self.crop_divisor >= 1, "1 or more"),
        )
        for name, right, expected in rules:
            if not right:
                raise UsageError("E-OPTION", None, f"{name} is {getattr(self, name)!r}", expected=expected)

    def points(self, layer: int) -> np.ndarray:
        """x and y in shares of a crop of points in each of its parts, f64 [points, 2]."""
        count = max(1, int(self.grid / self.crop_divisor**layer))
        places = np.linspace(1 / (2 * count), 1 - 1 / (2 * count), count)
        y, x = np.meshgrid(places, places, indexing="ij")
        return np.stack([x, y], -1).reshape(-1, 2)


@dataclass(frozen=True)
class MaskOptions:
    """Options of segmentation: by points and boxes or, without these, of everything.

    Attributes:
        points: x and y in pixels of the picture, and 1 (default) for points of the object or 0 for others.
        boxes: left, top, right and bottom in pixels of the picture.
        threshold: the score that masks exceed; None for 0.88 of everything, and any with prompts.
        top: how many masks of a picture, None for all.
        stability, iou, grid, min_area, crop_layers, crop_overlap, crop_divisor: of masks of everything, as of
            `Everything`; None for its defaults.
    """

    points: Sequence[Sequence[float]] | None = None
    boxes: Sequence[Sequence[float]] | None = None
    threshold: float | None = None
    top: int | None = None
    stability: float | None = None
    iou: float | None = None
    grid: int | None = None
    min_area: int | None = None
    crop_layers: int | None = None
    crop_overlap: float | None = None
    crop_divisor: int | None = None

    def shown(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Points f32 [points, 3] with labels, and boxes f32 [boxes, 4]; None if there are neither.

        Raises UsageError for prompts that do not fit each other, and for rules of everything besides them.
        """
        if not self.points and not self.boxes:
            return None
        misplaced = ", ".join(sorted(self._said().keys() - {"threshold"}))
        if misplaced:
            raise UsageError("E-OPTION", None, f"{misplaced}: for masks of everything, without points and boxes")
        rows = [[*point, 1.0] if len(point) == 2 else [*point] for point in self.points or ()]
        corners = [[*box] for box in self.boxes or ()]
        if any(len(row) != 3 or row[2] not in (0, 1) or not _are_near(row) for row in rows):
            expected = "x, y and the label 1 or 0"
            raise UsageError("E-PROMPT-POINT", None, "not a point", expected=expected, found=str(self.points))
        if any(len(box) != 4 or not (box[0] < box[2] and box[1] < box[3] and _are_near(box)) for box in corners):
            expected = "left < right and top < bottom"
            raise UsageError("E-PROMPT-BOX", None, "not a box", expected=expected, found=str(self.boxes))
        if rows and len(corners) > 1:
            why = "points show one object and cannot be given with several boxes"
            raise UsageError("E-PROMPT-BOX", None, why, hint="Give one box with the points, or boxes alone")
        return np.array(rows, np.float32).reshape(-1, 3), np.array(corners, np.float32).reshape(-1, 4)

    def everything(self) -> Everything:
        """Filters for the masks of everything."""
        return Everything(**self._said())

    def _said(self) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in Everything.__dataclass_fields__}
        return {name: value for name, value in said.items() if value is not None}


EVERYTHING = MaskOptions()


class MaskGeneration(ImagePipeline):
    """Cuts objects out of pictures."""

    options = MaskOptions

    @functools.cached_property
    def preparation(self) -> Preparation:
        """Preparation of pictures, as the model's files state it, else as segment-anything does."""
        _, height, width = self._model.image_shape
        sizes = {"size": {"longest_edge": max(height, width)}, "pad_size": {"height": height, "width": width}}
        usual = preparation_of({"image_processor_type": "SamImageProcessor", **sizes})
        return stated_preparation(self._model.options.source, usual)

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        asked: MaskOptions = EVERYTHING,
        *,
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
            asked: what is cut out.
            batch: pictures, or crops of a picture, that are encoded at once.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.

        Raises UsageError for prompts that do not fit each other or the picture.
        """
        shown, rules = asked.shown(), asked.everything()
        single, pictures = listed(inputs)
        found: list[Segments] = []
        if shown is None and rules.crop_layers:
            for picture in pictures:
                found.append(self._cropped(picture_of(picture), rules, batch, preparation))
                if progress is not None:
                    progress(len(found), len(pictures))
        else:
            for seen in self._seen(pictures, batch, preparation, progress):
                for row, at in enumerate(seen.placements):
                    embeddings = _of_row(seen.outputs, row)
                    if shown is None:
                        found.append(_distinct(self._everything(embeddings, at, rules, rules.points(0)), rules))
                    else:
                        found.append(self._shown(embeddings, at, shown, asked.threshold))
        rows = [_rows(each.at(np.argsort(-each.scores, kind="stable")[: asked.top])) for each in found]
        return rows[0] if single else rows

    def _shown(
        self, embeddings: Embeddings, at: Placement, shown: tuple[np.ndarray, np.ndarray], threshold: float | None
    ) -> Segments:
        """Masks of the objects that points and boxes show."""
        points, boxes = shown
        _check_inside(points, boxes, at.size)
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
        return concatenated(list(in_picture(logits[rows], scores[rows], at, 0.0)))

    def _cropped(self, image: Image, rules: Everything, batch: int, preparation: Preparation | None) -> Segments:
        """Masks of everything in a picture and in its crops."""
        size = image.height, image.width
        crops = list(crops_of(size, rules.crop_layers, rules.crop_overlap))
        parts, areas = [], []
        for seen in self._seen([image.crop(crop) for _, crop in crops], batch, preparation, None):
            for row, (number, at) in enumerate(zip(seen.rows, seen.placements, strict=True)):
                layer, crop = crops[number]
                some = self._everything(_of_row(seen.outputs, row), at, rules, rules.points(layer)).placed(crop, size)
                parts.append(some.at(distinct(some.boxes, some.scores, rules.iou)))
                areas += [at.size[0] * at.size[1]] * len(parts[-1].scores)
        found = concatenated(parts)
        return _clean(found.at(distinct(found.boxes, 1 / np.array(areas, np.float32), rules.iou)), rules)

    def _everything(self, embeddings: Embeddings, at: Placement, rules: Everything, shares: np.ndarray) -> Segments:
        """Masks of what points, in shares of the picture, find."""
        points = shares * at.size[::-1]
        parts: list[Segments] = []
        for start in range(0, len(points), POINTS_AT_ONCE):
            some = points[start : start + POINTS_AT_ONCE]
            prompts = Prompts(at.to_input(some)[None, :, None])
            outputs = self._model.decode(embeddings, prompts)
            scores = outputs[SCORES][0]
            asked, choice = np.nonzero(scores > rules.threshold)
            logits = outputs[MASKS][0, asked, choice]
            parts += in_picture(logits, scores[asked, choice], at, rules.stability, some[asked])
        return concatenated(parts)


def _are_near(places: Sequence[float]) -> bool:
    return all(abs(place) <= FARTHEST for place in places)


def _check_inside(points: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> None:
    """Raise UsageError for a point outside of a picture of a height and width, and for a box without any of it."""
    edges = np.array(size[::-1])
    for code, what, marks, outside in (
        ("E-PROMPT-POINT", "point", points[:, :2], (points[:, :2] < 0) | (points[:, :2] > edges)),
        ("E-PROMPT-BOX", "box", boxes, (boxes[:, 2:] <= 0) | (boxes[:, :2] >= edges)),
    ):
        for mark in marks[outside.any(-1)]:
            why = f"the {what} {', '.join(f'{each:g}' for each in mark)} is outside of the picture"
            raise UsageError(code, None, why, expected=f"x up to {edges[0]} and y up to {edges[1]}")


def _of_row(outputs: Embeddings, row: int) -> dict[str, np.ndarray]:
    """The outputs of the model for one picture."""
    return {name: array[row : row + 1] for name, array in outputs.items()}


def _distinct(found: Segments, rules: Everything) -> Segments:
    """Masks that overlap no better one."""
    return _clean(found.at(distinct(found.boxes, found.scores, rules.iou)), rules)


def _clean(found: Segments, rules: Everything) -> Segments:
    return cleaned(found, rules.min_area, rules.iou) if rules.min_area else found


def _rows(segments: Segments) -> list[dict[str, Any]]:
    rows = []
    for index, mask in enumerate(segments.masks):
        row = {
            "number": index + 1,
            "score": float(segments.scores[index]),
            "stability": float(segments.stability[index]),
            "area": mask.area,
            "box": named_edges(map(int, segments.boxes[index])),
            "mask": mask,
        }
        if segments.points is not None:
            row["point"] = [round(float(each), 2) for each in segments.points[index]]
        rows.append(row)
    return rows


PIPELINE = MaskGeneration
