"""Codes of audio: what encoding makes and decoding takes, and the checks of codes from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from .....runtime.contract.architecture import Config

Codes = np.ndarray | list[np.ndarray]
"""As of `AudioCodes.codes`."""


@dataclass(frozen=True, eq=False)
class AudioCodes:
    """The codec tokens of audio.

    Attributes:
        codes: i64 [batch, quantizers, frames]; [chunks, batch, quantizers, frames] of EnCodec; of codecs whose
            quantizers have codes of different lengths (SNAC) a list of [batch, frames], one for each quantizer.
        scales: f32 [chunks, batch, 1], the loudness of each chunk, if the codec normalizes it.
        length: samples that were encoded; decoding gives as many.
        padding: frames at the end of the last chunk that hold no audio.
    """

    codes: Codes
    scales: np.ndarray | None = None
    length: int | None = None
    padding: int = 0


def checked_codes(given: Any, rank: int, config: Config) -> np.ndarray:
    """Codes i64 [..., quantizers, frames] with `rank` dimensions; missing ones in front are added.

    Raises UsageError for other shapes and dtypes, more quantizers than the model has, and values that are not codes.
    """
    codes: np.ndarray = np.asarray(given)
    codes = codes[0] if rank == 3 and codes.ndim == 4 and len(codes) == 1 else codes
    codes = codes[(None,) * max(0, rank - codes.ndim)]
    if codes.ndim != rank or not codes.size or codes.dtype.kind not in "iu":
        expected = "integers [batch, quantizers, frames]"
        raise UsageError("E-CODEC-CODES", None, "these are not codes", expected=expected, found=np.shape(given))
    if codes.shape[-2] > config.quantizers:
        why = f"codes of {counted(codes.shape[-2], 'quantizer')}"
        raise UsageError("E-CODEC-CODES", None, why, expected=f"1 to {config.quantizers}")
    _check_range(codes, config.codebook_size)
    return codes.astype(np.int64)


def checked_levels(given: Any, config: Config) -> list[np.ndarray]:
    """Codes i64 [batch, frames] of each quantizer, for a codec whose quantizers have codes of different lengths.
    UsageError as of `checked_codes`."""
    strides = config.strides
    levels = [np.asarray(level) for level in given] if isinstance(given, list | tuple) else []
    levels = [level[None] if level.ndim == 1 else level for level in levels]
    shapes = {(len(level), level.shape[-1] * stride) for level, stride in zip(levels, strides, strict=False)}
    fits = len(levels) == len(strides) and len(shapes) == 1 and all(level.ndim == 2 for level in levels)
    if not fits or not all(level.size and level.dtype.kind in "iu" for level in levels):
        expected = f"{counted(len(strides), 'array')} of integers [batch, frames] whose lengths are as {strides[::-1]}"
        raise UsageError("E-CODEC-CODES", None, "these are not codes of the codec", expected=expected)
    frames, window = levels[0].shape[1] * strides[0], config.values.get("window") or 1
    if frames % window:
        why = f"codes of {counted(frames, 'frame')}"
        raise UsageError("E-CODEC-CODES", None, why, expected=f"a multiple of {window} frames")
    for level in levels:
        _check_range(level, config.codebook_size)
    return [level.astype(np.int64) for level in levels]


def checked_scales(given: Any, shape: tuple[int, int], config: Config) -> np.ndarray | None:
    """Scales f32 [chunks, batch], None if the model does not normalize. UsageError for missing ones and other
    shapes."""
    if given is None or (isinstance(given, list | tuple) and all(each is None for each in given)):
        if config.normalize:
            raise UsageError("E-CODEC-SCALES", None, "codes of this model need scales", expected="[chunks, batch, 1]")
        return None
    scales = np.asarray(given, np.float32)
    if scales.size != math.prod(shape) or not np.isfinite(scales).all():
        expected = f"finite numbers [{shape[0]}, {shape[1]}, 1]"
        raise UsageError("E-CODEC-SCALES", None, "scales do not fit the codes", expected=expected, found=scales.shape)
    return scales.reshape(shape)


def _check_range(codes: np.ndarray, size: int) -> None:
    """UsageError for numbers that a codebook of that size does not have."""
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= size:
        found = low if low < 0 else high
        raise UsageError("E-CODEC-CODES", None, f"{found:,} is not a code", expected=f"0 to {size - 1:,}")


def stacked(chunks: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Codes [chunks, batch, quantizers, frames] of chunks [batch, quantizers, frames], the last of which may be
    shorter, and how many frames of zeros it got."""
    frames = chunks[0].shape[2]
    whole = [np.pad(chunk, ((0, 0), (0, 0), (0, frames - chunk.shape[2]))) for chunk in chunks]
    return np.stack(whole), frames - chunks[-1].shape[2]
