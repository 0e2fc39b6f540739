"""Image segmentation: the class of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...postprocess.maps import class_map
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..labels import label_names
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed

OUTPUTS = ({"logits": 4},)


class ImageSegmentation(ImagePipeline):
    """Finds the parts of pictures."""

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        top: int | None = None,
        batch: int = 1,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``label``, ``share`` of the picture and ``mask`` (booleans [height, width]) of each class that is in the
        picture, the largest first; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            top: how many classes, None for all.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            logits = seen.outputs["logits"]
            names = label_names(self._model.options, logits.shape[1])
            for row, at in enumerate(seen.placements):
                classes = class_map(logits[row], at.size)
                counts = np.bincount(classes.ravel(), minlength=len(names))
                largest = [index for index in np.argsort(-counts, kind="stable") if counts[index]][:top]
                found.append(
                    [
                        {"label": names[index], "share": float(counts[index] / classes.size), "mask": classes == index}
                        for index in largest
                    ]
                )
        return found[0] if single else found


PIPELINE = ImageSegmentation
