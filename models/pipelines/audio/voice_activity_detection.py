"""Voice activity detection: the parts of sounds that are speech, by the networks of Silero VAD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...postprocess.speech_segments import speech_segments
from ...preprocess.audio.framing import frames_of, windows_of
from ...preprocess.audio.sound import Sound, opened_sound
from ..task_model import Progress, TaskModel
from .sound_inputs import each_sound

SAMPLES, HIDDEN, CELL, STATE, RATE_INPUT = "input", "h", "c", "state", "sr"
PROBABILITIES, PROBABILITY, NEXT_STATE = "speech_probs", "output", "stateN"
SIGNATURES = (
    ({SAMPLES: 2, HIDDEN: 3, CELL: 3}, {PROBABILITIES: 1, f"{HIDDEN}n": 3, f"{CELL}n": 3}),
    ({SAMPLES: 2, STATE: 3, RATE_INPUT: 0}, {PROBABILITY: 2, NEXT_STATE: 3}),
    ({SAMPLES: 2, STATE: 3}, {PROBABILITY: 2, NEXT_STATE: 3}),
)
"""Networks of many consecutive frames, and of one frame, with the rate or without."""
RATE, FRAME, CONTEXT = 16_000, 512, 64
"""Samples a second, of a frame, and of the frame before it that the network sees."""
WIDTH = 128
"""Elements of the LSTM's state in networks that do not tell."""
FRAMES = 512
"""Frames of one run."""


class VoiceActivityDetection:
    """Finds speech."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    def predict(
        self,
        inputs: Sound | Sequence[Sound],
        *,
        threshold: float = 0.5,
        shortest: float = 0.25,
        silence: float = 0.1,
        padding: float = 0.03,
        progress: Progress | None = None,
    ) -> Any:
        """``start`` and ``end``, in seconds, of each segment of speech, with silero_vad's algorithm and defaults; a
        list for each of a list of sounds.

        Args:
            inputs: sounds as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            threshold: the probability of speech.
            shortest: seconds of a segment, at least.
            silence: seconds between segments, at least.
            padding: seconds that are added at both ends.
            progress: called with the number of sounds done.
        """

        def rows(sound: Sound) -> list[dict[str, Any]]:
            probabilities, count = self._probabilities(sound)
            limits = (round(RATE * seconds) for seconds in (shortest, silence, padding))
            segments = speech_segments(probabilities, count, FRAME, threshold, *limits)
            return [{"start": start / RATE, "end": end / RATE} for start, end in segments]

        return each_sound(inputs, rows, progress)

    def _probabilities(self, sound: Sound) -> tuple[list[float], int]:
        """Of each frame, and the number of samples."""
        runs = self._of_many_frames if HIDDEN in self._model.input_names else self._of_single_frames
        counts: list[int] = []
        with opened_sound(sound, RATE) as opened:
            found = [each for run in runs(_framed(opened.blocks(RATE), counts)) for each in run.tolist()]
        return found, sum(counts)

    def _of_many_frames(self, runs: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        shape = self._model.graph.values[HIDDEN].shape or ()
        width = shape[-1] if shape and isinstance(shape[-1], int) else WIDTH
        hidden = cell = np.zeros((1, 1, width), np.float32)
        for frames in runs:
            found = self._model(input=frames, h=hidden, c=cell)
            hidden, cell = found[f"{HIDDEN}n"], found[f"{CELL}n"]
            yield found[PROBABILITIES]

    def _of_single_frames(self, runs: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        state = np.zeros((2, 1, WIDTH), np.float32)
        rate = {RATE_INPUT: np.array(RATE)} if RATE_INPUT in self._model.input_names else {}
        for frames in runs:
            for frame in frames:
                found = self._model(input=frame[None], state=state, **rate)
                state = found[NEXT_STATE]
                yield np.asarray(found[PROBABILITY]).reshape(-1)


def _framed(blocks: Iterator[np.ndarray], counts: list[int]) -> Iterator[np.ndarray]:
    """Runs f32 [at most `FRAMES`, `CONTEXT` + `FRAME`]; the last frame is padded with zeros. Numbers of samples are
    added to `counts`."""
    before = np.zeros(CONTEXT, np.float32)
    for samples in windows_of(blocks, FRAME * FRAMES):
        counts.append(len(samples))
        whole = np.concatenate([before, samples, np.zeros(-len(samples) % FRAME, np.float32)])
        yield frames_of(whole, CONTEXT + FRAME, FRAME).copy()
        before = whole[-CONTEXT:]


PIPELINE = VoiceActivityDetection
