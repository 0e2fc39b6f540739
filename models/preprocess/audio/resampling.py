"""Resampling and mixing: blocks of samples at another rate, with another number of channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .sound_library import soxr


def mixed(samples: np.ndarray, channels: int) -> np.ndarray:
    """f32 [frames, channels]: as they are if there are so many, else their mean, repeated."""
    if samples.shape[1] == channels:
        return samples
    mean: np.ndarray = samples.mean(1, keepdims=True, dtype=np.float32)
    return np.repeat(mean, channels, axis=1)


def resampled(blocks: Iterable[np.ndarray], source: int, target: int, channels: int) -> Iterator[np.ndarray]:
    """Blocks f32 [frames, channels] at the rate `target`, from blocks at the rate `source`; blocks without frames are
    left out. The result does not depend on the lengths of the blocks."""
    if source == target:
        yield from blocks
        return
    stream = soxr().ResampleStream(source, target, channels, dtype="float32", quality="HQ")
    for block in blocks:
        made = stream.resample_chunk(np.ascontiguousarray(block, np.float32))
        if len(made):
            yield made
    last = stream.resample_chunk(np.zeros((0, channels), np.float32), last=True)
    if len(last):
        yield last
