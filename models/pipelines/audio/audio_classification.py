"""Audio classification: labels of sounds, from spectrograms of Kaldi's filter banks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...preprocess.audio.framing import windows_of
from ...preprocess.audio.kaldi_filter_banks import FILE, FilterBanks, stated_filter_banks
from ...preprocess.audio.sound import Sound, opened_sound
from ...tokenizer.readers.locate import settings
from ..labels import configured, label_names, sigmoid, softmax
from ..task_model import Progress, TaskModel
from .sound_inputs import each_sound, rows_of

SPECTROGRAM, LOGITS = "input_values", "logits"
SIGNATURES = (({SPECTROGRAM: 3}, {LOGITS: 2}),)
TOP = 5
MULTI_LABEL = "multi_label_classification"


class SpectrogramPipeline:
    """Uses a model of spectrograms."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    @functools.cached_property
    def filter_banks(self) -> FilterBanks:
        """How spectrograms are made, as the files beside the weights say. FormatError for an invalid value."""
        _, frames, bands = self._model.graph.values[SPECTROGRAM].shape or (1, None, None)
        usual = FilterBanks()
        frames, bands = (
            own if isinstance(own, int) else other for own, other in ((frames, usual.frames), (bands, usual.bands))
        )
        source = self._model.options.source
        path = next(iter(source.files), None) if source is not None else None
        return stated_filter_banks({} if source is None else settings(source, FILE), path, bands, frames)

    def _mean(self, sound: Sound, output: str) -> np.ndarray:
        """An output of the model, averaged over spectrograms one after the other; a shorter one at the end counts by
        its length."""
        banks = self.filter_banks
        total, weight = np.zeros((), np.float64), 0.0
        with opened_sound(sound, banks.rate) as opened:
            for samples in windows_of(opened.blocks(banks.rate), banks.samples):
                if weight and len(samples) < banks.length:
                    break
                share = len(samples) / banks.samples
                (found,) = self._scores(np.asarray(self._model(input_values=banks(samples)[None])[output]))
                total, weight = total + share * found, weight + share
        return np.asarray(total / weight, np.float32)

    def _scores(self, values: np.ndarray) -> np.ndarray:
        return values


class AudioClassification(SpectrogramPipeline):
    """Finds the labels of sounds."""

    def predict(
        self, inputs: Sound | Sequence[Sound], *, top: int | None = TOP, progress: Progress | None = None
    ) -> Any:
        """``label`` and ``score`` of the most probable labels; a list for each of a list of sounds. Scores of a sound
        that is longer than the model's spectrogram are the mean over spectrograms one after the other.

        Args:
            inputs: sounds as `preprocess.audio.sound.Sound` describes them: paths, bytes, samples.
            top: how many labels, None for all.
            progress: told how many sounds are done.
        """

        def rows(sound: Sound) -> list[dict[str, Any]]:
            scores = self._mean(sound, LOGITS)
            return rows_of(scores, label_names(self._model.options, len(scores)), top)

        return each_sound(inputs, rows, progress)

    def _scores(self, values: np.ndarray) -> np.ndarray:
        several = configured(self._model.options).get("problem_type") == MULTI_LABEL
        return (sigmoid if several else softmax)(values.astype(np.float32))


PIPELINE = AudioClassification
