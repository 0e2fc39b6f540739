"""Image classification: labels of pictures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....runtime.base.process_cache import process_cache
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ...preprocess.stated_preparation import imagenet_preparation
from ..labels import is_multi_label, label_names, sigmoid, softmax
from ..task_model import Progress, TaskModel
from .image_model import MASK
from .image_pipeline import ImagePipeline, listed

OUTPUTS = ({"logits": None},)
TOP = 5
IMAGENET, WITH_BACKGROUND = 1000, 1001
BACKGROUND = "background"
"""The first class of networks that tell a thousand and one."""


SIDE = 224
"""Height and width of ImageNet's pictures, unless a model takes another size only."""


class AssumedPreparationWarning(UserWarning):
    """Nothing states how pictures are prepared, and ImageNet's way is taken."""


class ImageClassification(ImagePipeline):
    """Finds the labels of pictures."""

    def _assumed(self) -> Preparation | None:
        """ImageNet's preparation, for classifiers of as many classes."""
        graph, config = self._model.graph, self._model.options.config
        count = None if config is None else config.values.get("labels")
        if IMAGENET not in (count, class_count(self._model)):
            return None
        (pixels,) = (value for value in graph.inputs if value.name not in graph.weights and value.name != MASK)
        size = tuple(side if isinstance(side, int) else SIDE for side in (pixels.shape or ())[-2:]) or (SIDE, SIDE)
        why = f"no preprocessor_config.json: pictures are prepared as for ImageNet, {size[0]} x {size[1]}"
        warnings.warn(why, AssumedPreparationWarning, stacklevel=4)
        return imagenet_preparation((size[0], size[1]))

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        top: int | None = TOP,
        batch: int = 8,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``label`` and ``score`` of the most probable labels; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            top: how many labels, None for all.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        function = sigmoid if is_multi_label(self._model.options) else softmax
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            for row in function(np.asarray(seen.outputs["logits"], np.float32)):
                names = image_labels(self._model, len(row))
                best = np.argsort(-row, kind="stable")[:top]
                found.append([{"label": names[index], "score": float(row[index])} for index in best])
        return found[0] if single else found


def class_count(model: TaskModel) -> Any:
    """Number of classes of a model, by its logits or else its configuration; None if neither says it, a string if it is
    symbolic."""
    config = model.options.config
    stated = None if config is None else config.values.get("labels")
    return next((value.shape[-1] for value in model.graph.outputs if value.name == "logits" and value.shape), stated)


def image_labels(model: TaskModel, count: int) -> Sequence[str]:
    """The names of `count` labels: those of the model's files, or of ImageNet for a thousand without names."""
    names = label_names(model.options, count)
    unnamed = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    if unnamed and count in (IMAGENET, WITH_BACKGROUND):
        return imagenet_labels() if count == IMAGENET else (BACKGROUND, *imagenet_labels())
    return names


@process_cache
def imagenet_labels() -> tuple[str, ...]:
    """The classes of ImageNet."""
    text = Path(__file__).with_name("imagenet_labels.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


PIPELINE = ImageClassification
