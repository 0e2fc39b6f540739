"""Audio files are written: WAV, FLAC, OGG and MP3 by the suffix."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...models.preprocess.audio.sound import BLOCK, RATES
from ...models.preprocess.audio.sound_library import soundfile
from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
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
    """Write samples f32 [frames] or [channels, frames]; other arguments as of `write_sound_blocks`."""
    rows = np.asarray(samples, np.float32)
    if rows.ndim not in (1, 2):
        raise _invalid(str(list(rows.shape)))
    rows = np.atleast_2d(rows)
    write_sound_blocks(path, [rows], rate, len(rows), dtype=dtype, force=force)


def write_sound_blocks(
    path: str | os.PathLike[str],
    blocks: Iterable[np.ndarray],
    rate: int,
    channels: int,
    *,
    dtype: str = "i16",
    force: bool = False,
) -> None:
    """Write blocks of samples f32 [channels, frames], clipped to -1 to 1; the file appears under its name when it is
    complete.

    Args:
        path: its suffix tells the format; ``-`` is WAV on standard output.
        blocks: of a model, one after the other.
        rate: samples a second.
        channels: of each block.
        dtype: of samples in WAV files: ``i16``, ``i24`` or ``f32``.
        force: whether an existing file is replaced.

    Raises UsageError for other suffixes, rates, dtypes and values, UnsafeFileError for an existing file.
    """
    check_sound_suffix(path)
    kind, coding = WRITTEN.get(Path(path).suffix.lower(), WRITTEN[".wav"])
    if kind == "WAV":
        coding = _coding(dtype)
    if rate not in RATES:
        expected = f"{RATES.start:,} to {RATES.stop:,}"
        raise UsageError("E-SOUND-RATE", None, f"{counted(rate, 'sample')} a second", expected=expected)
    library = soundfile()
    with (
        replacing(path, force=force) as file,
        _checked(file) as checked,
        library.SoundFile(checked, "w", rate, channels, coding, format=kind, closefd=False) as sound,
    ):
        for block in blocks:
            for frames in _frames(block):
                sound.write(frames)
                checked.check()


def sound_bytes(samples: np.ndarray, rate: int, suffix: str) -> bytes:
    """Samples f32 [frames] or [channels, frames], encoded as files of a suffix are."""
    kind, coding = WRITTEN[suffix]
    rows, buffer = np.atleast_2d(samples), io.BytesIO()
    with soundfile().SoundFile(buffer, "w", rate, len(rows), coding, format=kind, closefd=False) as sound:
        for frames in _frames(rows):
            sound.write(frames)
    return buffer.getvalue()


def _frames(block: np.ndarray) -> Iterator[np.ndarray]:
    """Frames [count, channels] in parts: libsndfile's Vorbis encoder overflows its stack on long arrays."""
    frames = _finite(block).T
    for start in range(0, len(frames), BLOCK):
        yield np.ascontiguousarray(frames[start : start + BLOCK])


class _Checked:
    """A file for libsndfile, whose callbacks cannot raise: it keeps the first error, for the next `check`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        return self._called("write", data)

    def read(self, count: int) -> bytes:
        data: bytes = self._called("read", count)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._called("seek", offset, whence)

    def tell(self) -> int:
        return self._called("tell")

    def flush(self) -> None:
        self._called("flush")

    def _called(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._file, method)(*arguments)
        except OSError as error:
            self._error, self._file = error, io.BytesIO()
            return getattr(self._file, method)(*arguments)

    def check(self) -> None:
        """Raise the error that writing met."""
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def _checked(file: IO[bytes]) -> Iterator[_Checked]:
    """The file; whatever fails after it has met an error, in libsndfile or its binding, is that error."""
    checked = _Checked(file)
    try:
        yield checked
    except Exception:
        checked.check()
        raise
    checked.check()


def _coding(dtype: str) -> str:
    if dtype not in CODINGS:
        raise UsageError("E-SOUND-DTYPE", None, f"WAV has no samples of {dtype}", expected=", ".join(CODINGS))
    return CODINGS[dtype]


def _finite(samples: np.ndarray) -> np.ndarray:
    array = np.asarray(samples, np.float32)
    if not np.isfinite(array).all():
        raise _invalid("values that are not finite")
    return array


def _invalid(found: str) -> UsageError:
    return UsageError("E-SOUND-ARRAY", None, "not samples [frames] or [channels, frames]", found=found)
