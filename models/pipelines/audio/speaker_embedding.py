"""Speaker embedding: the voice in a sound as a vector, as Resemblyzer makes it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ...preprocess.audio.framing import frames_of
from ...preprocess.audio.log_mel import mel_filters
from ...preprocess.audio.sound import Sound, samples_of
from ..pooling import normalized
from ..task_model import Progress, TaskModel
from .sound_inputs import each_sound

MELS, VECTORS = "mels", "embeds"
SIGNATURES = (({MELS: 3}, {VECTORS: 2}),)
RATE, WINDOW, HOP = 16_000, 400, 160
"""Samples a second, of a frame, and from one frame to the next."""
BANDS = 40
"""Mel bands of models that do not state them."""
FRAMES = 160
"""Frames of a part of the sound, whose vectors are averaged."""
STEP = round(RATE / 1.3 / HOP)
"""Frames from one part to the next: 1.3 parts a second."""
COVERED = 0.75
"""Minimum share of the last part that the sound covers; it is left out below that."""
LOUDNESS = -30.0
"""Decibels below full scale to which quieter sounds are raised."""
BATCH = 64
"""Parts of one run."""


class SpeakerEmbedding:
    """Makes vectors of voices."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    def embed(
        self, sounds: Sound | Sequence[Sound], *, raise_volume: bool = True, progress: Progress | None = None
    ) -> np.ndarray:
        """Vectors of length 1; see `AudioModel.embed`.

        Args:
            sounds: as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            raise_volume: whether quiet sounds are made as loud as Resemblyzer's ``preprocess_wav`` makes them; pauses
                are not cut out.
            progress: called with the number of sounds done.

        Raises UsageError for silence, which has no voice.
        """

        def vector(sound: Sound) -> np.ndarray:
            samples = samples_of(sound, RATE)
            return self._vector(_louder(samples) if raise_volume else samples)

        return np.asarray(each_sound(sounds, vector, progress), np.float32)

    @functools.cached_property
    def _filters(self) -> np.ndarray:
        shape = self._model.graph.values[MELS].shape or ()
        bands = shape[-1] if shape and isinstance(shape[-1], int) else BANDS
        return mel_filters(bands, WINDOW, RATE, RATE / 2)

    @memory_limited
    def _vector(self, samples: np.ndarray) -> np.ndarray:
        starts = _starts(len(samples))
        needed = (starts[-1] + FRAMES) * HOP
        energies = self._energies(np.pad(samples, (0, max(0, needed - len(samples)))))
        parts = [energies[start : start + FRAMES] for start in starts]
        vectors = [
            self._model(mels=np.stack(parts[first : first + BATCH]))[VECTORS] for first in range(0, len(parts), BATCH)
        ]
        mean = np.concatenate(vectors).mean(0)
        if not np.isfinite(mean).all() or not mean.any():
            raise UsageError("E-SOUND-SILENT", None, "no voice: the sound is silent", hint="Leave it out")
        return normalized(mean[None])[0]

    def _energies(self, samples: np.ndarray) -> np.ndarray:
        """Energies of mel bands, f32 [1 + samples / `HOP`, bands], of frames around every `HOP`-th sample."""
        window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
        frames = frames_of(np.pad(samples, WINDOW // 2), WINDOW, HOP)
        found = np.empty((len(frames), len(self._filters)), np.float32)
        for first in range(0, len(frames), 4096):
            spectrum = np.fft.rfft(frames[first : first + 4096] * window)
            powers = (np.square(spectrum.real) + np.square(spectrum.imag)).astype(np.float32)
            found[first : first + 4096] = powers @ self._filters.T
        return found


def _louder(samples: np.ndarray) -> np.ndarray:
    """At least as loud as `LOUDNESS`."""
    mean = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    wanted = 10 ** (LOUDNESS / 20)
    if not 0 < mean < wanted:
        return samples
    return (samples * np.float32(wanted / mean)).astype(np.float32)


def _starts(count: int) -> list[int]:
    """The first frame of each part of so many samples."""
    frames = -(-(count + 1) // HOP)
    starts = list(range(0, max(1, frames - FRAMES + STEP + 1), STEP))
    covered = (count - starts[-1] * HOP) / (FRAMES * HOP)
    return starts[:-1] if covered < COVERED and len(starts) > 1 else starts


PIPELINE = SpeakerEmbedding
