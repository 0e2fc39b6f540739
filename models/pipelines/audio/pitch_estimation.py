"""Pitch estimation: the fundamental frequency of sounds every ten milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....ops.rules.output_limit import allowed
from ...postprocess.pitch_path import FREQUENCIES, bin_of, local_frequencies, most_probable_path
from ...preprocess.audio.framing import frames_of
from ...preprocess.audio.sound import Sound, opened_sound
from ..task_model import Progress, TaskModel
from .sound_inputs import each_sound

FRAMES, PROBABILITIES = "frames", "probabilities"
SIGNATURES = (({FRAMES: 2}, {PROBABILITIES: 2}),)
RATE, LENGTH, HOP = 16_000, 1024, 160
"""Samples a second, of a frame, and from one frame to the next."""
BATCH = 128
"""Frames of one run."""
LOWEST, HIGHEST = 50.0, 2006.0
"""Hertz."""


class PitchEstimation:
    """Follows the pitch of sounds."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    def predict(
        self,
        inputs: Sound | Sequence[Sound],
        *,
        threshold: float = 0.0,
        lowest: float = LOWEST,
        highest: float = HIGHEST,
        progress: Progress | None = None,
    ) -> Any:
        """``time`` (seconds), ``hertz`` and ``confidence`` of a frame every 10 ms; a list for each of a list of sounds.

        The frames' bins are the most probable path (Viterbi), as in torchcrepe; the frequency is the mean of the bins
        around that of the path, weighted by their probabilities, as in the paper. The confidence is the probability of
        the path's bin.

        Args:
            inputs: sounds as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            threshold: frames of a lower confidence are left out.
            lowest, highest: hertz of the pitch.
            progress: called with the number of sounds done.
        """

        def rows(sound: Sound) -> list[dict[str, Any]]:
            probabilities = self._probabilities(sound)
            hidden = (FREQUENCIES[bin_of(lowest)] > FREQUENCIES) | (np.arange(len(FREQUENCIES)) >= bin_of(highest, 1))
            path = most_probable_path(probabilities, ~hidden)
            confidence = np.take_along_axis(probabilities, path[:, None], 1)[:, 0]
            frames = zip(local_frequencies(probabilities, path), confidence, strict=True)
            return [
                {"time": row * HOP / RATE, "hertz": float(hertz), "confidence": float(sure)}
                for row, (hertz, sure) in enumerate(frames)
                if sure >= threshold
            ]

        return each_sound(inputs, rows, progress)

    def _probabilities(self, sound: Sound) -> np.ndarray:
        """Of each bin, f32 [frames, bins]; frame i is around sample i x `HOP`."""
        found: list[np.ndarray] = []
        with opened_sound(sound, RATE) as opened:
            for frames in _frames(opened.blocks(RATE)):
                found.append(np.asarray(self._model(frames=_normalized(frames))[PROBABILITIES], np.float32))
                allowed((BATCH * len(found), found[-1].shape[1]), 8, "following the pitch")
        return np.concatenate(found)


def _frames(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Frames f32 [at most `BATCH`, `LENGTH`] of samples with half a frame of zeros on both sides."""
    held = np.zeros(LENGTH // 2, np.float32)
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= LENGTH + (BATCH - 1) * HOP:
            yield frames_of(held, LENGTH, HOP)[:BATCH]
            held = held[BATCH * HOP :]
    held = np.concatenate([held, np.zeros(LENGTH // 2, np.float32)])
    while len(held) >= LENGTH:
        yield frames_of(held, LENGTH, HOP)[:BATCH]
        held = held[BATCH * HOP :]


def _normalized(frames: np.ndarray) -> np.ndarray:
    """With a mean of 0 and a standard deviation of 1."""
    centered = frames - frames.mean(1, keepdims=True)
    found: np.ndarray = centered / np.maximum(1e-10, centered.std(1, ddof=1, keepdims=True))
    return found


PIPELINE = PitchEstimation
