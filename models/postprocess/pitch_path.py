"""Paths of pitch through the bins of CREPE (Kim et al. 2018, arXiv:1802.06182)."""

from __future__ import annotations

import math

import numpy as np

BINS, CENTS = 360, 20.0
"""Number of bins, and the distance of neighbours in cents."""
FIRST = 1997.3794084376191
"""Cents of the first bin, above 10 Hz."""
REACH = 12
"""Bins that the pitch moves less than from one frame to the next."""
AROUND = 4
"""Bins on both sides of the path's that tell the frequency."""
CENTERS = FIRST + CENTS * np.arange(BINS)
"""Cents of the bins, f64."""
FREQUENCIES = 10 * 2 ** (CENTERS / 1200)
"""Hertz of the bins, f64."""
TINY = float(np.finfo(np.float64).tiny)


def bin_of(hertz: float, up: int = 0) -> int:
    """The bin of a frequency, the next lower or, for `up` = 1, the next higher one; of those that exist."""
    place = (1200 * math.log2(max(hertz, 1.0) / 10) - FIRST) / CENTS
    return min(max(math.ceil(place) if up else math.floor(place), 0), BINS - 1 + up)


def most_probable_path(probabilities: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """The bins i64 [frames] of the most probable path (Viterbi), on which near bins follow each other.

    Args:
        probabilities: f32 [frames, bins], which are normalized by a softmax as torchcrepe does.
        visible: bool [bins], the bins that the path may have.
    """
    scores = np.where(visible, np.exp(probabilities.astype(np.float64)), 0)
    emitted = np.log(scores / scores.sum(1, keepdims=True) + TINY)
    distance = np.abs(np.subtract.outer(np.arange(BINS), np.arange(BINS)))
    moves = np.maximum(REACH - distance, 0)
    moves = np.log(moves / moves.sum(1, keepdims=True) + TINY)
    came_from = np.zeros(probabilities.shape, np.int16)
    best = emitted[0] - math.log(BINS)
    for frame in range(1, len(emitted)):
        reached = best[:, None] + moves
        came_from[frame] = reached.argmax(0)
        best = reached[came_from[frame], np.arange(BINS)] + emitted[frame]
    path = np.zeros(len(emitted), np.int64)
    path[-1] = best.argmax()
    for frame in range(len(emitted) - 1, 0, -1):
        path[frame - 1] = came_from[frame, path[frame]]
    return path


def local_frequencies(probabilities: np.ndarray, path: np.ndarray) -> np.ndarray:
    """Hertz f64 [frames]: the mean of the bins around those of the path, weighted by their probabilities."""
    near = path[:, None] + np.arange(-AROUND, AROUND + 1)
    inside = (near >= 0) & (near < BINS)
    near = np.clip(near, 0, BINS - 1)
    weights = np.where(inside, np.take_along_axis(probabilities, near, 1), 0).astype(np.float64) + TINY
    cents = (weights * CENTERS[near]).sum(1) / weights.sum(1)
    found: np.ndarray = 10 * 2 ** (cents / 1200)
    return found
