"""Linear interpolation between pixel centers, without averaging where a picture is made smaller."""

from __future__ import annotations

import numpy as np


def neighbors(length: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two elements that each of `new` elements lies between, and the weight of the second."""
    position = np.clip((np.arange(new) + 0.5) * length / new - 0.5, 0, length - 1)
    first = np.floor(position).astype(np.int64)
    return first, np.minimum(first + 1, length - 1), (position - first).astype(np.float32)


def between(first: np.ndarray, second: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """first + (second - first) * weight."""
    found: np.ndarray = first + (second - first) * weight
    return found
