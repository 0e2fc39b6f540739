"""Audio feature extraction: one vector of each sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...preprocess.audio.sound import Sound
from ..task_model import Progress
from .heard_windows import VALUES, HeardWindows
from .sound_inputs import each_sound

VECTOR, STATES = "pooler_output", "last_hidden_state"
SIGNATURES = (({VALUES: 3}, {STATES: 3, VECTOR: 2}), ({VALUES: 2}, {STATES: 3}))
"""Inputs and outputs of models of spectrograms, and of samples, which make no vector: it is the mean over frames."""


class AudioFeatureExtraction(HeardWindows):
    """Computes embeddings of audio."""

    def embed(self, sounds: Sound | Sequence[Sound], *, progress: Progress | None = None) -> np.ndarray:
        """Vectors; see `AudioModel.embed`. Those of a sound that is longer than a window of the model are the mean over
        windows one after the other."""
        output = VECTOR if any(value.name == VECTOR for value in self._model.graph.outputs) else STATES
        return np.asarray(each_sound(sounds, lambda sound: self.mean(sound, output), progress), np.float32)

    def scores(self, values: np.ndarray) -> np.ndarray:
        """The mean over the frames of hidden states [1, frames, width]."""
        found: np.ndarray = values.mean(1) if values.ndim == 3 else values
        return found


PIPELINE = AudioFeatureExtraction
