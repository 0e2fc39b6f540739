"""Base of the pipelines of text models: token ids of texts, run in batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ..tokenizer.core.encoding import Encoding
from .text_inputs import TextInputs, token_limit
from .text_model import Progress, TextModel


class TextPipeline:
    """Uses a model of texts for a task."""

    def __init__(self, model: TextModel) -> None:
        self._model = model

    def _stated_length(self) -> int | None:
        """The most tokens of a text, as further files of the model say; None for what its tokenizer's say."""
        return None

    @functools.cached_property
    def _inputs(self) -> TextInputs:
        return TextInputs(self._model, token_limit(self._model, self._stated_length()))

    def _rows(
        self,
        encodings: Sequence[Encoding],
        batch: int,
        progress: Progress | None,
        compute: Callable[[dict[str, np.ndarray]], np.ndarray],
    ) -> np.ndarray:
        """What `compute` makes of each text, f32 [texts, width], from the feeds of a batch; [0, 0] without texts."""
        found: np.ndarray | None = None
        for rows, feeds in self._inputs.batches(encodings, batch, progress):
            made = np.asarray(compute(feeds), np.float32)
            if found is None:
                found = np.empty((len(encodings), made.shape[-1]), np.float32)
            found[rows] = made
        return np.empty((0, 0), np.float32) if found is None else found
