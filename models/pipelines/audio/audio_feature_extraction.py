"""Audio feature extraction: one vector of each sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...preprocess.audio.sound import Sound
from ..task_model import Progress
from .audio_classification import SPECTROGRAM, SpectrogramPipeline
from .sound_inputs import each_sound

VECTOR = "pooler_output"
SIGNATURES = (({SPECTROGRAM: 3}, {"last_hidden_state": 3, VECTOR: 2}),)


class AudioFeatureExtraction(SpectrogramPipeline):
    """Makes vectors of sounds."""

    def embed(self, sounds: Sound | Sequence[Sound], *, progress: Progress | None = None) -> np.ndarray:
        """Vectors; see `AudioModel.embed`. Those of a sound that is longer than the model's spectrogram are the mean
        over spectrograms one after the other."""
        return np.asarray(each_sound(sounds, lambda sound: self._mean(sound, VECTOR), progress), np.float32)


PIPELINE = AudioFeatureExtraction
