"""Sounds: files, encoded bytes, pipes and arrays as samples at the rate of a model, in blocks or at once."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ....ops.rules.output_limit import allowed
from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error, FormatError, LimitError, UsageError, printable
from ....runtime.base.system_error import read_error
from ....runtime.base.units import counted
from .resampling import mixed, resampled
from .sound_library import soundfile
from .wave_stream import read_wave_header, wave_blocks

FORMATS = ("WAV", "AIFF", "AU", "CAF", "FLAC", "MP3", "OGG", "OPUS", "RF64", "W64")
"""Formats of audio files that are read."""
SUFFIXES = frozenset(
    {".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64", ".w64", ".wav"}
)
"""Names of audio files end in one of these."""
SLACK, SLACK_SHARE = 0.5, 0.01
"""Seconds, and share of the length, by which headers of compressed sounds may be off."""
RATES = range(1_000, 1_000_000)
"""Samples a second that files may have."""
SECONDS = 10.0
"""Maximum seconds of a block."""
BLOCK = 1 << 20
"""Samples of all channels of a block, at most."""
PIPED = 1 << 30
"""Bytes of a pipe that is not WAV, at most: they are kept in a file."""
BEGINNING = 1 << 16
"""Bytes that a header is looked for in."""
HEAD = 12
"""Bytes by which a format is recognised."""
Sound = Any
"""A path, encoded bytes, a binary file, samples [frames] or [frames, channels] (f32 in -1 to 1 or i16) that have the
model's rate, or a pair of such samples and their rate."""


@dataclass(frozen=True)
class OpenSound:
    """A sound whose samples have not been read yet.

    Attributes:
        path: of the file, None for others.
        rate: samples a second.
        channels: how many there are.
        seconds: the length that the header tells, as far as the file is that long; None if it tells none.
        announced: the length that the header tells, where it is known to tell more than there may be.
        source: makes blocks f32 [frames, channels] of at most so many frames; once.
    """

    path: str | None
    rate: int
    channels: int
    seconds: float | None
    source: Any
    announced: float | None = None

    def blocks(self, rate: int, channels: int = 1, seconds: float = SECONDS) -> Iterator[np.ndarray]:
        """Samples f32 [frames], or [channels, frames] for more than one channel, at the rate of the model.

        Args:
            rate: samples a second.
            channels: one is the mean of all; a single one is repeated for more.
            seconds: length of a block, at most; the first and the last are shorter.

        Raises FormatError for damaged files, values that are not numbers, and sounds without samples.
        """
        frames = max(1, min(int(self.rate * seconds), BLOCK // self.channels))
        blocks = (mixed(block, channels) for block in self._checked(frames))
        made = 0
        for block in resampled(blocks, self.rate, rate, channels):
            made += len(block)
            yield block[:, 0] if channels == 1 else block.T
        if not made:
            raise FormatError("E-SOUND-EMPTY", self.path, "the sound has no samples")

    def _checked(self, frames: int) -> Iterator[np.ndarray]:
        done = 0
        for block in self.source(frames):
            if not np.isfinite(block).all():
                why = f"samples after {done / self.rate:.1f} s are not finite numbers"
                raise FormatError("E-SOUND-VALUES", self.path, why)
            done += len(block)
            yield block
        announced, found = self.announced or self.seconds or 0.0, done / self.rate
        if found and announced - found > max(SLACK, announced * SLACK_SHARE):
            what = "the sound" if self.path is None else printable(self.path)
            warnings.warn(
                f"{what} is cut short: its header tells {announced:,.1f} s, {found:,.1f} s are there",
                ShortSoundWarning,
                stacklevel=2,
            )


class ShortSoundWarning(UserWarning):
    """A sound has fewer samples than its header tells."""


@contextlib.contextmanager
def opened_sound(given: Sound, rate: int) -> Iterator[OpenSound]:
    """A sound, open for reading in the block.

    Args:
        given: as `Sound` describes.
        rate: of samples that are given without a rate.

    Raises FileAccessError for paths that cannot be read, FormatError for damaged and other files, UnsupportedError
    without soundfile, UsageError for values of other kinds.
    """
    if isinstance(given, str | os.PathLike):
        with _opened_path(os.fspath(given)) as sound:
            yield sound
    elif isinstance(given, bytes):
        with _decoded(io.BytesIO(given), given[:HEAD], None) as sound:
            yield sound
    elif hasattr(given, "read"):
        with _opened_stream(given, None) as sound:
            yield sound
    else:
        yield _of_samples(given, rate)


def samples_of(given: Sound, rate: int, channels: int = 1) -> np.ndarray:
    """All samples of a sound, f32 [frames], or [channels, frames] for more than one channel, at a rate.

    Raises what `opened_sound` and `OpenSound.blocks` do, and LimitError for sounds beyond the memory limit.
    """
    blocks, done = [], 0
    with opened_sound(given, rate) as sound:
        for block in sound.blocks(rate, channels):
            done += block.shape[-1]
            allowed((channels, done), 2 * block.itemsize, "reading the sound")
            blocks.append(block)
    return np.concatenate(blocks, axis=-1)


@contextlib.contextmanager
def _opened_path(path: str) -> Iterator[OpenSound]:
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise read_error(path, error) from error
    with file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            with _decoded(file.fileno(), os.pread(file.fileno(), HEAD, 0), path) as sound:
                yield sound
        else:
            with _opened_stream(file, path) as sound:
                yield sound


@contextlib.contextmanager
def _opened_stream(stream: BinaryIO, path: str | None) -> Iterator[OpenSound]:
    """A pipe: WAV as it arrives, other formats through a file."""
    head = stream.read(HEAD)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        header = read_wave_header(stream)
        yield _checked_rate(
            OpenSound(
                path, header.rate, header.channels, header.seconds, lambda frames: wave_blocks(stream, header, frames)
            )
        )
        return
    _recognised(head, path)
    with tempfile.TemporaryFile() as file:
        file.write(head)
        _spooled(stream, file)
        file.seek(0)
        with _decoded(file, head, path) as sound:
            yield sound


def _spooled(stream: BinaryIO, file: BinaryIO) -> None:
    """The rest of a stream is appended to a file; LimitError beyond `PIPED` bytes."""
    while data := stream.read(BLOCK):
        if file.tell() + len(data) > PIPED:
            why = f"standard input and pipes may have {PIPED:,} bytes, unless they are WAV"
            raise LimitError("E-SOUND-PIPE", None, why, hint="Give the audio as a file")
        file.write(data)


@contextlib.contextmanager
def _decoded(file: Any, head: bytes, path: str | None) -> Iterator[OpenSound]:
    """A file that can be sought in, or its descriptor."""
    library = soundfile()
    try:
        _recognised(head, path)
        with library.SoundFile(file, closefd=False) as sound:
            seconds = sound.frames / sound.samplerate if sound.samplerate else 0.0

            def source(frames: int) -> Iterator[np.ndarray]:
                done = 0
                while True:
                    try:
                        block = sound.read(frames, "float32", always_2d=True)
                    except library.SoundFileError as error:
                        why = f"cannot be decoded after {done / sound.samplerate:.1f} s: {_reason(error)}"
                        raise FormatError("E-SOUND-DAMAGED", path, why) from error
                    if not len(block):
                        return
                    done += len(block)
                    yield block

            announced = _announced(file, head)
            yield _checked_rate(OpenSound(path, sound.samplerate, sound.channels, seconds, source, announced))
    except library.SoundFileError as error:
        raise FormatError("E-SOUND-DAMAGED", path, f"cannot be decoded: {_reason(error)}") from error


def _announced(file: Any, head: bytes) -> float | None:
    """Seconds that the header of a WAV file tells, which libsndfile shortens to what is there; None of others."""
    if head[:4] != b"RIFF":
        return None
    stream = io.BytesIO(_beginning(file))
    stream.seek(HEAD)
    try:
        header = read_wave_header(stream)
    except Error:  # compressed, or a long header: libsndfile judges it
        return None
    return header.seconds


def _beginning(file: Any) -> bytes:
    """The first bytes of a descriptor or a file that can be sought in, whose position stays."""
    if isinstance(file, int):
        return os.pread(file, BEGINNING, 0)
    at = file.tell()
    file.seek(0)
    data: bytes = file.read(BEGINNING)
    file.seek(at)
    return data


def _reason(error: Any) -> str:
    return str(getattr(error, "error_string", error)).removeprefix("Error : ").rstrip(".")


def _recognised(head: bytes, path: str | None) -> None:
    """FormatError unless a file starts as one of `FORMATS` does."""
    if not _audio(head):
        why = "not audio of a known format" if head else "the file is empty"
        raise FormatError("E-SOUND-FORMAT", path, why, hint=f"Formats: {', '.join(FORMATS)}")


def _audio(head: bytes) -> bool:
    if head[:4] in (b"RIFF", b"RIFX", b"RF64"):
        return head[8:12] == b"WAVE"
    if head[:4] == b"FORM":
        return head[8:12] in (b"AIFF", b"AIFC")
    if head[:4] in (b"fLaC", b"OggS", b".snd", b"caff", b"riff") or head[:3] == b"ID3":
        return True
    return len(head) > 2 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4) and head[2] >> 4 != 15


def _checked_rate(sound: OpenSound) -> OpenSound:
    if sound.rate not in RATES:
        why = f"the header tells {counted(sound.rate, 'sample')} a second"
        raise FormatError("E-SOUND-RATE", sound.path, why, expected=f"{RATES.start:,} to {RATES.stop:,}")
    return sound


def _of_samples(given: Any, rate: int) -> OpenSound:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | np.integer):
        given, rate = given[0], int(given[1])
        if rate not in RATES:
            raise UsageError(
                "E-SOUND-RATE", None, f"{counted(rate, 'sample')} a second", expected=f"at least {RATES.start:,}"
            )
    if not hasattr(given, "__array__") and not isinstance(given, list):
        expected = "a path, bytes, a binary file, samples, or a pair of samples and rate"
        raise UsageError("E-SOUND-KIND", None, "not a sound", expected=expected, found=type(given).__name__)
    samples = np.asarray(given)
    if samples.dtype == np.int16:
        samples = samples / np.float32(1 << 15)
    if samples.dtype.kind != "f" or samples.ndim not in (1, 2) or not samples.size:
        why = "samples are f32 or i16 [frames] or [frames, channels]"
        raise UsageError("E-SOUND-ARRAY", None, why, found=f"{samples.dtype} {list(samples.shape)}")
    samples = samples.astype(np.float32, copy=False).reshape(len(samples), -1)

    def source(frames: int) -> Iterator[np.ndarray]:
        return (samples[start : start + frames] for start in range(0, len(samples), frames))

    return OpenSound(None, rate, samples.shape[1], len(samples) / rate, source)
