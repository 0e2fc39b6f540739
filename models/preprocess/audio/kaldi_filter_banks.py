"""Filter banks as Kaldi computes them: logarithms of the energies of mel bands."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.contract.hyperparameter import POSITIVE, REAL, Integer, Kind, ParameterError, checked, flag
from .framing import frames_of
from .waveform import FILE, invalid_parameter

FRAME_SECONDS, HOP_SECONDS = 0.025, 0.010
PREEMPHASIS = 0.97
LOWEST = 20.0
"""Hertz at which the first band begins; the last one ends at half the rate."""
FLOOR = np.float64(np.finfo(np.float32).eps)
"""Least energy, before the logarithm."""


@dataclass(frozen=True)
class FilterBanks:
    """Settings of spectrograms; the defaults are AST's.

    Attributes:
        bands: mel bands.
        frames: of a spectrogram; fewer are padded with zeros.
        rate: samples a second.
        mean, std: of energies, which are normalized to a mean of 0 and a standard deviation of 0.5; None if they are
            not.
    """

    bands: int = 128
    frames: int = 1024
    rate: int = 16_000
    mean: float | None = -4.2677393
    std: float = 4.5689974

    @property
    def length(self) -> int:
        """Samples of a frame."""
        return int(self.rate * FRAME_SECONDS)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return int(self.rate * HOP_SECONDS)

    @property
    def samples(self) -> int:
        """Samples of a spectrogram."""
        return (self.frames - 1) * self.hop + self.length

    @functools.cached_property
    def _window(self) -> np.ndarray:
        return np.hanning(self.length)

    @functools.cached_property
    def _filters(self) -> np.ndarray:
        size = _power_of_two(self.length)
        return kaldi_filters(self.bands, size, self.rate)

    def energies(self, samples: np.ndarray) -> np.ndarray:
        """Logarithms of energies, f32 [frames, bands], of samples f32 [count]; fewer than a frame are padded."""
        padded = np.pad(samples, (0, max(0, self.length - len(samples)))).astype(np.float64)
        frames = frames_of(padded, self.length, self.hop)
        frames = frames - frames.mean(1, keepdims=True)
        first = frames[:, :1] * (1 - PREEMPHASIS)
        emphasized = np.concatenate([first, frames[:, 1:] - PREEMPHASIS * frames[:, :-1]], 1)
        spectrum = np.fft.rfft(emphasized * self._window, _power_of_two(self.length))
        powers = np.square(spectrum.real) + np.square(spectrum.imag)
        found: np.ndarray = np.log(np.maximum(powers @ self._filters.T, FLOOR)).astype(np.float32)
        return found

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """A spectrogram f32 [frames, bands] of samples f32 [count], as ASTFeatureExtractor of transformers has it; what
        exceeds it is cut off."""
        energies = self.energies(samples[: self.samples])
        found = np.zeros((self.frames, self.bands), np.float32)
        found[: len(energies)] = energies
        if self.mean is None:
            return found
        with np.errstate(all="ignore"):
            found = (found - np.float32(self.mean)) / np.float32(self.std * 2)
        if not np.isfinite(found).all():
            why = f"mean and std in {FILE} give features that exceed f32"
            raise FormatError("E-PREPROCESSOR-KEY", None, why, hint=f"Correct them in {FILE}")
        return found


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def kaldi_filters(bands: int, size: int, rate: int) -> np.ndarray:
    """Filters that are triangles in mels, f64 [bands, 1 + size / 2]: the weight of each frequency in each band.

    Args:
        bands: from `LOWEST` hertz to half the rate.
        size: elements of the Fourier transform.
        rate: samples a second.
    """
    frequencies = _mels(np.arange(size // 2 + 1) * rate / size)
    edges = np.linspace(_mels(LOWEST), _mels(rate / 2), bands + 2)
    widths = np.diff(edges)
    rising = (frequencies - edges[:-2, None]) / widths[:-1, None]
    falling = (edges[2:, None] - frequencies) / widths[1:, None]
    return np.maximum(0, np.minimum(rising, falling))


def _mels(hertz: Any) -> Any:
    """Kaldi's mels."""
    return 1127 * np.log1p(hertz / 700)


KINDS: Mapping[str, Kind] = {
    "num_mel_bins": Integer(1, 1024),
    "max_length": Integer(1, 1 << 14),
    "sampling_rate": Integer(1_000, 1_000_000),
    "mean": REAL,
    "std": POSITIVE,
    "do_normalize": flag,
}


def stated_filter_banks(said: Mapping[str, Any], path: str | None, bands: int, frames: int) -> FilterBanks:
    """Settings of spectrograms as preprocessor_config.json states them; `bands` and `frames` are those of the model.

    Raises FormatError for invalid values, and spectrograms of another size than the model's.
    """
    usual = FilterBanks(bands, frames)
    try:
        values = {name: checked(name, said[name], kind) for name, kind in KINDS.items() if said.get(name) is not None}
    except ParameterError as error:
        raise invalid_parameter(error, path) from error
    stated = values.get("max_length", frames), values.get("num_mel_bins", bands)
    if stated != (frames, bands):
        why = f"{FILE} has spectrograms of another size than the model's"
        raise FormatError("E-PREPROCESSOR-KEY", path, why, expected=[frames, bands], found=list(stated))
    mean = values.get("mean", usual.mean) if values.get("do_normalize", True) else None
    return FilterBanks(bands, frames, values.get("sampling_rate", usual.rate), mean, values.get("std", usual.std))
