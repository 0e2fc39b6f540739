"""Small regions: holes and islands of masks that are too small to mean anything."""

from __future__ import annotations

import numpy as np

from .connected_regions import regions


def without_small_regions(mask: np.ndarray, area: int) -> tuple[np.ndarray, bool]:
    """A mask [height, width] without holes and islands of fewer than `area` pixels, and whether it had any.

    Of islands that are all too small the largest one stays (`remove_small_regions` of segment-anything).
    """
    holes, sizes = regions(~mask)
    filled = mask | np.isin(holes, np.flatnonzero(sizes < area) + 1)
    islands, sizes = regions(filled)
    small = sizes < area
    if not small.any():
        return filled, bool((filled != mask).any())
    kept = np.flatnonzero(~small) if not small.all() else np.array([sizes.argmax()])
    return np.isin(islands, kept + 1), True
