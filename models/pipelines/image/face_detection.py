"""Face detection: boxes around faces, with eyes, nose and corners of the mouth, by a cascade of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ops.rules.output_limit import allowed
from ...postprocess.face_windows import Windows, averaged, centered, crops, decided, proposed, refined, scales
from ...preprocess.picture import Picture, picture_of
from ..task_model import Progress
from .face_cascade import OUTPUT, PROPOSAL, REFINEMENT, FaceCascade
from .image_pipeline import listed, named_edges

PROPOSED, REFINED, DECIDED = 0.6, 0.7, 0.7
"""Thresholds of the scores of the three networks, as in facenet-pytorch."""
SMALLEST = 20
"""Pixels of the shorter edge of faces that are looked for."""
SIDES = {REFINEMENT: 24, OUTPUT: 48}
"""Edges of the windows that the later networks judge."""
LABEL = "face"


class FaceDetection:
    """Finds faces."""

    def __init__(self, model: FaceCascade) -> None:
        self._model = model

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        threshold: float | None = None,
        top: int | None = None,
        smallest: float = SMALLEST,
        progress: Progress | None = None,
    ) -> Any:
        """``label``, ``score``, ``box`` (``xmin``, ``ymin``, ``xmax``, ``ymax`` in pixels) and ``keypoints`` [[x, y],
        ...] of each face, the most certain first: eyes, nose and corners of the mouth, left before right as in the
        picture; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            threshold: the score that faces exceed; None for 0.7.
            top: how many faces of a picture, None for all.
            smallest: the shorter edge of the smallest faces that are looked for, in pixels.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        found = []
        for number, picture in enumerate(pictures, 1):
            pixels = np.asarray(picture_of(picture))
            faces = self._faces(pixels, DECIDED if threshold is None else threshold, max(float(smallest), 1.0))
            found.append(_rows(faces, pixels.shape[1::-1])[:top])
            if progress is not None:
                progress(number, len(pictures))
        return found[0] if single else found

    def _faces(self, pixels: np.ndarray, threshold: float, smallest: float) -> Windows:
        height, width = pixels.shape[:2]
        scans = []
        for scale in scales((height, width), smallest):
            size = int(height * scale + 1), int(width * scale + 1)
            allowed((*size, pixels.shape[2]), 8, "scanning a picture")
            scans.append((scale, self._model.judge(PROPOSAL, centered(averaged(pixels, size))[None])))
        windows = proposed(scans, PROPOSED)
        for name, side in SIDES.items():
            images, shown = crops(pixels, windows.edges, side)
            windows = Windows(windows.edges[shown], windows.scores[shown])
            if not len(shown):
                break
            judged = self._model.judge(name, images)
            windows = refined(windows, judged, REFINED) if name == REFINEMENT else decided(windows, judged, threshold)
        return windows


def _rows(faces: Windows, size: Sequence[int]) -> list[dict[str, Any]]:
    """Results, moved to the edge of a picture of a width and height if they are outside."""
    most = np.array(size, np.float32)
    rows = []
    for index, score in enumerate(faces.scores):
        corners = np.clip(faces.edges[index].reshape(2, 2), 0, most).ravel()
        edges = (round(float(edge), 2) for edge in corners)
        row = {"label": LABEL, "score": float(score), "box": named_edges(edges)}
        if faces.landmarks is not None:
            row["keypoints"] = [[round(float(each), 2) for each in point] for point in faces.landmarks[index]]
        rows.append(row)
    return rows


PIPELINE = FaceDetection
