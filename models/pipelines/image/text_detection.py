"""Text detection: boxes around words in pictures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...postprocess.text_regions import Thresholds, text_regions
from ...preprocess.picture import Picture
from ...preprocess.preparation import TWO_BY_TWO, Padding, Preparation
from ...preprocess.resize_rules import NoLonger
from ...preprocess.stated_preparation import stated_preparation
from ...preprocess.timm_transform import MEAN, STD
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed, named_edges

OUTPUTS = ({"region_score": None, "affinity_score": None},)
LONGEST, DIVISOR = 2560, 32
"""Maximum, and divisor, of the edges of prepared pictures, as in EasyOCR."""
SCALE = 2
"""Pixels of the input that one position of a score map stands for."""
LABEL = "text"


class TextDetection(ImagePipeline):
    """Finds words."""

    @functools.cached_property
    def preparation(self) -> Preparation:
        """Preparation of pictures: as the model's files state it, else as EasyOCR does."""
        return stated_preparation(self._model.options.source, otherwise=easyocr())

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        threshold: float | None = None,
        top: int | None = None,
        batch: int = 1,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``label``, ``score``, ``box`` (``xmin``, ``ymin``, ``xmax``, ``ymax`` in pixels) and ``polygon`` (four
        corners [x, y], clockwise) of each word, from top to bottom; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            threshold: the score that the best character of a word exceeds; None for 0.7.
            top: how many words of a picture, the most certain ones; None for all.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        limits = Thresholds() if threshold is None else Thresholds(threshold, min(threshold, Thresholds().low))
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            maps = seen.outputs["region_score"], seen.outputs["affinity_score"]
            for region, affinity, at in zip(*maps, seen.placements, strict=True):
                corners, scores = text_regions(region, affinity, limits)
                best = np.sort(np.argsort(-scores, kind="stable")[:top])
                found.append([_row(at.to_picture(corners[index] * SCALE), scores[index]) for index in best])
        return found[0] if single else found


def easyocr() -> Preparation:
    """Pictures in their own size, unless they are very large, on black whose edges are multiples of 32."""
    factor = tuple(1 / (255 * each) for each in STD)
    shift = tuple(-mean / std for mean, std in zip(MEAN, STD, strict=True))
    padding = Padding(divisor=DIVISOR, black=True)
    return Preparation(NoLonger(LONGEST), TWO_BY_TWO, factor=factor, shift=shift, padding=padding)


def _row(corners: np.ndarray, score: float) -> dict[str, Any]:
    polygon = [[round(float(x), 2), round(float(y), 2)] for x, y in corners]
    edges = (*np.min(polygon, 0), *np.max(polygon, 0))
    box = named_edges(map(float, edges))
    return {"label": LABEL, "score": float(score), "box": box, "polygon": polygon}


PIPELINE = TextDetection
