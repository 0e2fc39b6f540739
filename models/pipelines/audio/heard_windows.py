"""Windows of sounds as models take them: spectrograms of Kaldi's filter banks, or prepared samples."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ...preprocess.audio.framing import windows_of
from ...preprocess.audio.kaldi_filter_banks import FilterBanks, stated_filter_banks
from ...preprocess.audio.sound import Sound, opened_sound
from ...preprocess.audio.waveform import FILE, Waveform, stated_waveform
from ...tokenizer.readers.locate import settings
from ..task_model import TaskModel

VALUES = "input_values"
WINDOW_SECONDS = 30
"""Seconds of a window of samples."""
LEAST_SECONDS = 1
"""Minimum seconds of the last window, which is left out if it is shorter."""


class HeardWindows:
    """Runs a model over the windows of sounds, and averages what it finds."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    @functools.cached_property
    def filter_banks(self) -> FilterBanks:
        """Settings of spectrograms, as the files next to the weights state them. FormatError for an invalid value."""
        _, frames, bands = self._model.graph.values[VALUES].shape or (1, None, None)
        usual = FilterBanks()
        frames, bands = (
            own if isinstance(own, int) else other for own, other in ((frames, usual.frames), (bands, usual.bands))
        )
        return stated_filter_banks(*self._said(), bands, frames)

    @functools.cached_property
    def waveform(self) -> Waveform:
        """Preparation of samples, as `filter_banks`."""
        return stated_waveform(*self._said(), Waveform())

    def _said(self) -> tuple[dict[str, object], str | None]:
        source = self._model.options.source
        path = next(iter(source.files), None) if source is not None else None
        return {} if source is None else dict(settings(source, FILE)), path

    def mean(self, sound: Sound, output: str) -> np.ndarray:
        """An output of the model, averaged over windows one after the other; a shorter one at the end counts by its
        length."""
        total, weight = np.zeros((), np.float64), 0.0
        for values, share in self._windows(sound):
            (found,) = self.scores(np.asarray(self._model(input_values=values[None])[output]))
            total, weight = total + share * found, weight + share
        return np.asarray(total / weight, np.float32)

    def scores(self, values: np.ndarray) -> np.ndarray:
        """The scores that are averaged, of an output [1, ...]."""
        return values

    def _windows(self, sound: Sound) -> Iterator[tuple[np.ndarray, float]]:
        """The model's input of each window, and its share of a whole window."""
        if len(self._model.graph.values[VALUES].shape or ()) == 2:
            how: Waveform | FilterBanks = self.waveform
            length, least = WINDOW_SECONDS * how.rate, LEAST_SECONDS * how.rate
        else:
            how = self.filter_banks
            length, least = how.samples, how.length
        first = True
        with opened_sound(sound, how.rate) as opened:
            for samples in windows_of(opened.blocks(how.rate), length):
                if first or len(samples) >= least:
                    yield how(samples), len(samples) / length
                first = False
