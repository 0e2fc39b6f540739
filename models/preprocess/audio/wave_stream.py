"""WAV from a pipe: samples as they arrive, without seeking, whatever length the header announces."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
"""Format tags."""
WIDTHS = {(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64)}
"""Format tags with the bits of a sample that are read."""
UNKNOWN_LENGTHS = (range(1), range(0x7FFF0000, 0x80000001), range(0xFFFF0000, 0x100000000))
"""Bytes that programs announce which write to a pipe: none, or about the most of an i32 or a u32."""
MAX_CHUNK = 1 << 20
"""Bytes of a chunk before the samples."""


@dataclass(frozen=True)
class WaveHeader:
    """The header before the samples.

    Attributes:
        kind: `PCM` or `FLOAT`.
        bits: of a sample.
        length: bytes of all samples, None if the header does not tell.
    """

    kind: int
    channels: int
    rate: int
    bits: int
    length: int | None

    @property
    def seconds(self) -> float | None:
        """The length that the header tells; None if it does not, or tells no rate."""
        if self.length is None or not self.rate:
            return None
        return 8 * self.length / self.bits / self.channels / self.rate


def read_wave_header(stream: BinaryIO) -> WaveHeader:
    """The header up to the samples, of a stream after its first twelve bytes.

    Raises FormatError for a damaged header, UnsupportedError for compressed samples.
    """
    told: tuple[int, int, int, int] | None = None
    while True:
        head = stream.read(8)
        if len(head) < 8:
            raise _damaged("the header has no chunk 'data'")
        name, length = head[:4], struct.unpack("<I", head[4:])[0]
        if name == b"data":
            break
        if length > MAX_CHUNK:
            raise _damaged(f"the header has a chunk of {counted(length, 'byte')} before the samples")
        chunk = stream.read(length + length % 2)
        if name == b"fmt ":
            told = _format_of(chunk)
    if told is None:
        raise _damaged("the header has no chunk 'fmt '")
    kind, channels, rate, bits = told
    if (kind, bits) not in WIDTHS:
        hint = "Give the audio as a file, or as PCM"
        raise UnsupportedError("E-SOUND-CODING", None, f"WAV coding {kind} of {bits} bits is not read", hint=hint)
    known = not any(length in lengths for lengths in UNKNOWN_LENGTHS)
    return WaveHeader(kind, channels, rate, bits, length if known else None)


def _format_of(chunk: bytes) -> tuple[int, int, int, int]:
    if len(chunk) < 16:
        raise _damaged("the chunk 'fmt ' is too short")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == EXTENSIBLE and len(chunk) >= 26:
        (kind,) = struct.unpack_from("<H", chunk, 24)
    if not channels:
        raise _damaged("the header has no channels")
    return kind, channels, rate, bits


def _damaged(why: str) -> FormatError:
    return FormatError("E-SOUND-DAMAGED", None, f"the WAV stream is damaged: {why}")


def wave_blocks(stream: BinaryIO, header: WaveHeader, frames: int) -> Iterator[np.ndarray]:
    """Samples f32 [frames, channels] in -1 to 1, at most `frames` at once, until the stream ends."""
    width = header.channels * header.bits // 8
    left = header.length
    while left is None or left > 0:
        data = stream.read(width * frames if left is None else min(width * frames, left))
        whole = len(data) // width * width
        if whole:
            yield _samples(data[:whole], header).reshape(-1, header.channels)
        if len(data) < width * frames:
            return
        left = None if left is None else left - len(data)


def _samples(data: bytes, header: WaveHeader) -> np.ndarray:
    if header.kind == FLOAT:
        return np.frombuffer(data, f"<f{header.bits // 8}").astype(np.float32)
    if header.bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if header.bits == 24:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return (padded.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    return (np.frombuffer(data, f"<i{header.bits // 8}") / 2.0 ** (header.bits - 1)).astype(np.float32)
