"""Chunks of audio that a codec codes apart: EnCodec's of a second, which overlap and fade into each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

SILENCE = 1e-8
"""Added to the loudness by which chunks are divided."""


def chunks_of(blocks: Iterable[np.ndarray], size: int, step: int) -> Iterator[np.ndarray]:
    """Blocks [..., samples] as chunks of `size` samples that start every `step` samples; those at the end are
    shorter."""
    held: np.ndarray | None = None
    for block in blocks:
        held = block if held is None else np.concatenate([held, block], axis=-1)
        while held.shape[-1] >= size + step:
            yield held[..., :size]
            held = held[..., step:]
    while held is not None and held.shape[-1]:
        yield held[..., :size]
        held = held[..., step:]


def normalized(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A chunk [batch, channels, samples] divided by its loudness, and the loudness [batch, 1]."""
    loudness = np.sqrt(np.square(chunk.mean(1, keepdims=True)).mean(-1, keepdims=True)) + np.float32(SILENCE)
    return chunk / loudness, loudness[:, 0]


def overlap_added(pieces: Iterable[np.ndarray], step: int) -> Iterator[np.ndarray]:
    """The sum of pieces [batch, channels, samples] that start `step` samples after each other, weighted by triangles
    and divided by the sum of the weights; in blocks."""
    weight = total = weights = None
    for piece in pieces:
        length = piece.shape[2]
        if weight is None or total is None or weights is None:
            places = np.linspace(0, 1, length + 2, dtype=np.float32)[1:-1]
            weight = np.float32(0.5) - np.abs(places - np.float32(0.5))
            total, weights = np.zeros((*piece.shape[:2], 0), np.float32), np.zeros(0, np.float32)
        missing = max(0, length - total.shape[2])
        total, weights = np.pad(total, ((0, 0), (0, 0), (0, missing))), np.pad(weights, (0, missing))
        total[:, :, :length] += weight[:length] * piece
        weights[:length] += weight[:length]
        yield _mean(total[:, :, :step], weights[:step])
        total, weights = total[:, :, step:], weights[step:]
    if total is not None and weights is not None and total.shape[2]:
        yield _mean(total, weights)


def _mean(total: np.ndarray, weights: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.divide(total, weights, out=np.zeros_like(total), where=weights > 0)
    return found
