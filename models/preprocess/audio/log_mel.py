"""Log-mel spectrograms as Whisper has them (Radford et al. 2022, arXiv:2212.04356)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.hyperparameter import Integer, Only, ParameterError, checked
from .waveform import FILE, invalid_parameter

FLOOR = 1e-10
"""Least energy, before the logarithm."""
RANGE = 8.0
"""Decades below the loudest element at which features are cut."""
KINDS = {
    "feature_size": Integer(1, 1024),
    "n_fft": Integer(2, 1 << 14),
    "hop_length": Integer(1, 1 << 14),
    "sampling_rate": Integer(1000, 1_000_000),
    "chunk_length": Integer(1, 3600),
}
SILENT = ("dither", "padding_value")
"""Settings of noise in samples and of what follows them, both of which have to be 0."""
HIGHEST = 8000.0
"""Hertz at which the last band ends, at any rate of samples."""


@dataclass(frozen=True)
class LogMel:
    """Settings of log-mel features.

    Attributes:
        mels: frequency bands.
        fft: samples of a frame.
        hop: samples from one frame to the next.
        rate: samples a second.
        seconds: length of a window that the model reads.
    """

    mels: int = 80
    fft: int = 400
    hop: int = 160
    rate: int = 16000
    seconds: int = 30

    @property
    def samples(self) -> int:
        """Samples of a window."""
        return self.rate * self.seconds

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return (self.samples - self.fft % 2) // self.hop

    @functools.cached_property
    def filters(self) -> np.ndarray:
        """f32 [mels, 1 + fft / 2]: the weight of each frequency in each band."""
        return mel_filters(self.mels, self.fft, self.rate, HIGHEST)

    @functools.cached_property
    def window(self) -> np.ndarray:
        """The periodic Hann window, f32 [fft]."""
        found: np.ndarray = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.fft) / self.fft)).astype(np.float32)
        return found

    def energies(self, samples: np.ndarray) -> np.ndarray:
        """Logarithms, base 10, of the energy of each band, f32 [mels, frames], of samples with half a frame of others
        on both sides, f32 [hop x frames + fft]."""
        frames = np.lib.stride_tricks.sliding_window_view(samples, self.fft)[:: self.hop][:-1]
        spectrum = np.fft.rfft(frames * self.window)
        powers = np.square(spectrum.real) + np.square(spectrum.imag)
        found: np.ndarray = np.log10(np.maximum(self.filters @ powers.astype(np.float32).T, np.float32(FLOOR)))
        return found

    def scaled(self, energies: np.ndarray, peak: float | None = None) -> np.ndarray:
        """Features f32 [mels, frames]: energies at most `RANGE` below the largest one, or `peak`, scaled."""
        highest = np.float32(energies.max() if peak is None else peak)
        found: np.ndarray = (np.maximum(energies, highest - np.float32(RANGE)) + np.float32(4)) / np.float32(4)
        return found

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """Features f32 [mels, frames] of one window of samples f32 [count]; shorter ones are padded with silence.

        Raises UsageError for longer ones and other shapes.
        """
        samples = np.asarray(samples, np.float32)
        if samples.ndim != 1 or len(samples) > self.samples:
            why = "samples are not those of one window"
            raise UsageError("E-SOUND-WINDOW", None, why, expected=f"[{self.samples}]", found=list(samples.shape))
        whole = np.zeros(self.samples, np.float32)
        whole[: len(samples)] = samples
        return self.scaled(self.energies(np.pad(whole, self.fft // 2, mode="reflect")))


def stated_log_mel(said: Mapping[str, Any], path: str | None, otherwise: LogMel) -> LogMel:
    """The settings of preprocessor_config.json, else `otherwise`. FormatError for an invalid value."""
    names = ("feature_size", "n_fft", "hop_length", "sampling_rate", "chunk_length")
    usual = (otherwise.mels, otherwise.fft, otherwise.hop, otherwise.rate, otherwise.seconds)
    try:
        values = [
            checked(name, said.get(name, default), KINDS[name]) for name, default in zip(names, usual, strict=True)
        ]
        for name in SILENT:
            checked(name, said.get(name, 0), Only(0))
    except ParameterError as error:
        raise invalid_parameter(error, path) from error
    log_mel = LogMel(*values)
    if log_mel.fft > log_mel.samples or log_mel.hop > log_mel.fft:
        why = f"{FILE} has frames of {counted(log_mel.fft, 'sample')} every {log_mel.hop:,}"
        raise FormatError("E-PREPROCESSOR-KEY", path, why, hint=f"Correct n_fft and hop_length in {FILE}")
    return log_mel


def checked_size(log_mel: LogMel, bands: int | None, frames: int | None, path: str | None) -> LogMel:
    """`log_mel`; FormatError where its features have another size than those of a model, as far as that is known."""
    stated = [log_mel.mels, log_mel.frames]
    expected = [known or own for known, own in zip((bands, frames), stated, strict=True)]
    if stated != expected:
        why, hint = f"{FILE} makes features of another size than the model's", f"Correct it in {FILE}"
        raise FormatError("E-PREPROCESSOR-KEY", path, why, expected=expected, found=stated, hint=hint)
    return log_mel


def mel_filters(mels: int, fft: int, rate: int, highest: float) -> np.ndarray:
    """Triangular filters on Slaney's mel scale, each of area 1, from 0 to `highest` hertz, f32 [mels, 1 + fft / 2]."""
    frequencies = np.linspace(0, rate // 2, 1 + fft // 2)
    edges = hertz(np.linspace(0.0, mel(np.array(highest)), mels + 2))
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    found: np.ndarray = (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)
    return found


LINEAR, KNEE = 200 / 3, 1000.0
"""Hertz of a mel in the linear part of Slaney's scale, and where it ends."""
STEP = np.log(6.4) / 27
"""Logarithm of the ratio of neighbouring mels beyond."""


def mel(frequencies: np.ndarray) -> np.ndarray:
    """Hertz as mels of Slaney's scale (Slaney 1998, Auditory Toolbox)."""
    found: np.ndarray = np.where(
        frequencies < KNEE, frequencies / LINEAR, KNEE / LINEAR + np.log(np.maximum(frequencies, KNEE) / KNEE) / STEP
    )
    return found


def hertz(mels: np.ndarray) -> np.ndarray:
    """Mels of Slaney's scale as hertz."""
    knee = KNEE / LINEAR
    found: np.ndarray = np.where(mels < knee, mels * LINEAR, KNEE * np.exp(STEP * (np.maximum(mels, knee) - knee)))
    return found
