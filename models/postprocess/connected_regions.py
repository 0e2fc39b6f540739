"""Connected regions of masks, from the runs in their rows."""

from __future__ import annotations

import numpy as np


def regions(mask: np.ndarray, *, corners: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The number of the connected region of each pixel, int64 [height, width] with 0 outside of the mask, and the area
    of each region, in the order of their first pixels.

    Args:
        corners: whether pixels that touch at a corner are connected.
    """
    height, width = mask.shape
    padded = np.zeros((height, width + 2), np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1).reshape(-1)
    starts, ends = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
    labels = _joined(len(starts), *_touching(starts, ends, width + 1, corners))
    _, run_regions = np.unique(labels, return_inverse=True)
    lengths = ends - starts
    areas = np.bincount(run_regions, weights=lengths).astype(np.int64)
    found = np.zeros((height, width), np.int64)
    found[mask] = np.repeat(run_regions + 1, lengths)
    return found, areas


def _touching(starts: np.ndarray, ends: np.ndarray, stride: int, corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of touching runs in consecutive rows; runs are [start, end) in rows of `stride` pixels, of which the last
    one is never inside."""
    first = np.searchsorted(ends, starts + stride, "left" if corners else "right")
    after = np.searchsorted(starts, ends + stride, "right" if corners else "left")
    counts = np.maximum(after - first, 0)
    upper = np.repeat(np.arange(len(starts)), counts)
    offsets = np.arange(len(upper)) - np.repeat(np.cumsum(counts) - counts, counts)
    return upper, first[upper] + offsets


def _joined(count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The least member of the set of each of `count` elements, where pairs of elements are in one set."""
    roots = np.arange(count)
    while True:
        left, right = roots[one], roots[other]
        if (left == right).all():
            return roots
        np.minimum.at(roots, np.maximum(left, right), np.minimum(left, right))
        while (roots[roots] != roots).any():
            roots = roots[roots]
