"""Audio classification: labels of sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...preprocess.audio.sound import Sound
from ..labels import is_multi_label, label_names, sigmoid, softmax
from ..task_model import Progress
from .heard_windows import VALUES, HeardWindows
from .sound_inputs import each_sound, rows_of

LOGITS = "logits"
SIGNATURES = (({VALUES: 3}, {LOGITS: 2}), ({VALUES: 2}, {LOGITS: 2}))
"""Inputs and outputs of models of spectrograms, and of samples: ranks by name."""
TOP = 5


class AudioClassification(HeardWindows):
    """Finds the labels of sounds."""

    def predict(
        self, inputs: Sound | Sequence[Sound], *, top: int | None = TOP, progress: Progress | None = None
    ) -> Any:
        """``label`` and ``score`` of the most probable labels; a list for each of a list of sounds. Scores of a sound
        that is longer than a window of the model are the mean over windows one after the other.

        Args:
            inputs: sounds as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            top: how many labels, None for all.
            progress: called with the number of sounds done.
        """

        def rows(sound: Sound) -> list[dict[str, Any]]:
            scores = self.mean(sound, LOGITS)
            return rows_of(scores, label_names(self._model.options, len(scores)), top)

        return each_sound(inputs, rows, progress)

    def scores(self, values: np.ndarray) -> np.ndarray:
        """Probabilities of logits."""
        several = is_multi_label(self._model.options)
        return (sigmoid if several else softmax)(values.astype(np.float32))


PIPELINE = AudioClassification
