"""Text recognition: what a picture of one line of text says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...preprocess.picture import Picture, picture_of
from ...preprocess.preparation import BICUBIC
from ..labels import label_names, softmax
from ..task_model import Progress, TaskModel
from .image_pipeline import listed

LOGITS = "character_logits"
"""Name of the output, [batch, positions, characters]."""
OUTPUTS = ({LOGITS: None},)
HEIGHT = 64
"""Height of prepared pictures, as in EasyOCR."""
BLANK = 0
"""The character that separates others, and stands for none."""


class TextRecognition:
    """Reads lines of text."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    def predict(self, inputs: Picture | Sequence[Picture], *, progress: Progress | None = None) -> Any:
        """``text`` of a picture of one line, and its ``score`` in 0 to 1, as a list of one; a list for each of several
        pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        found = []
        for number, picture in enumerate(pictures, 1):
            logits = self._model(prepared(picture))[LOGITS]
            text, score = decoded(logits[0], label_names(self._model.options, logits.shape[-1]))
            found.append([{"text": text, "score": score}])
            if progress is not None:
                progress(number, len(pictures))
        return found[0] if single else found


def prepared(picture: Picture) -> np.ndarray:
    """A picture in grey, f32 [1, 1, height, width] in -1 to 1: `AlignCollate` of EasyOCR, the width a multiple of the
    height, the last column repeated."""
    image = picture_of(picture, 1)
    ratio = image.width / image.height
    whole = math.ceil(ratio) * HEIGHT
    resized = image.resize((min(whole, math.ceil(HEIGHT * ratio)), HEIGHT), BICUBIC)
    values = np.asarray(resized, np.float32) / np.float32(127.5) - 1
    return np.pad(values, ((0, 0), (0, whole - values.shape[1])), "edge")[None, None]


def decoded(logits: np.ndarray, characters: Sequence[str]) -> tuple[str, float]:
    """The best characters [positions, characters] without repetitions and blanks (CTC), and EasyOCR's score of them."""
    shares = softmax(logits)
    best = shares.argmax(-1)
    told = best != BLANK
    first = np.diff(best, prepend=-1) != 0
    text = "".join(characters[index] for index in best[told & first])
    certain = shares.max(-1)[told]
    return text, float(certain.prod() ** (2 / math.sqrt(len(certain)))) if len(certain) else 0.0


PIPELINE = TextRecognition
