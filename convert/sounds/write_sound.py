"""Audio files are written: WAV, FLAC, OGG and MP3 by the suffix."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...models.preprocess.audio.sound import BLOCK, RATES
from ...models.preprocess.audio.sound_library import soundfile
from ...runtime.base.errors import UsageError
from ..console.atomic_replace import replacing
from ..console.stdio import STREAM

WRITTEN = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
"""libsndfile's names of container and coding by suffix."""
CODINGS = {"i16": "PCM_16", "i24": "PCM_24", "f32": "FLOAT"}
"""libsndfile's names of the codings of WAV by dtype."""


def check_sound_suffix(path: str | os.PathLike[str]) -> None:
    """UsageError for names of files that are not written; before long work. ``-`` is WAV on standard output."""
    suffix = Path(path).suffix.lower()
    if os.fspath(path) != STREAM and suffix not in WRITTEN:
        expected = ", ".join(WRITTEN)
        raise UsageError("E-SOUND-SUFFIX", path, "audio is not written to such files", expected=expected, found=suffix)


def write_sound(
    path: str | os.PathLike[str], samples: np.ndarray, rate: int, *, dtype: str = "i16", force: bool = False
) -> None:
    """Write samples f32 [frames] or [channels, frames], clipped to -1 to 1; the file appears under its name when it is
    complete.

    Args:
        path: its suffix tells the format; ``-`` is WAV on standard output.
        samples: of a model.
        rate: samples a second.
        dtype: of samples in WAV files: ``i16``, ``i24`` or ``f32``.
        force: whether an existing file is replaced.

    Raises UsageError for other suffixes, rates, dtypes and values, UnsafeFileError for an existing file.
    """
    check_sound_suffix(path)
    kind, coding = WRITTEN.get(Path(path).suffix.lower(), WRITTEN[".wav"])
    if kind == "WAV":
        coding = _coding(dtype)
    frames = np.atleast_2d(_checked(samples, rate)).T
    made = io.BytesIO()
    with soundfile().SoundFile(made, "w", rate, frames.shape[1], coding, format=kind) as sound:
        for start in range(0, len(frames), BLOCK):  # libsndfile's Vorbis encoder overflows its stack on long arrays
            sound.write(np.ascontiguousarray(frames[start : start + BLOCK]))
    with replacing(path, force=force) as file:
        file.write(made.getvalue())


def _coding(dtype: str) -> str:
    if dtype not in CODINGS:
        raise UsageError("E-SOUND-DTYPE", None, f"WAV has no samples of {dtype}", expected=", ".join(CODINGS))
    return CODINGS[dtype]


def _checked(samples: np.ndarray, rate: int) -> Any:
    array = np.asarray(samples, np.float32)
    if array.ndim not in (1, 2) or not np.isfinite(array).all():
        what = "values that are not finite" if array.ndim in (1, 2) else str(list(array.shape))
        raise UsageError("E-SOUND-ARRAY", None, "not samples [frames] or [channels, frames]", found=what)
    if rate not in RATES:
        raise UsageError(
            "E-SOUND-RATE", None, f"{rate:,} samples a second", expected=f"{RATES.start:,} to {RATES.stop:,}"
        )
    return array
