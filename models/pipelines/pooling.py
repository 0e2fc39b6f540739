"""Pooling: one vector for each text, from the hidden states of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def mean_pooled(hidden: np.ndarray, mask: ArrayLike | None = None) -> np.ndarray:
    """The mean of hidden states [batch, length, width] over each text's tokens, f32 [batch, width].

    Args:
        mask: [batch, length], 1 for tokens, 0 for padding; None if all are tokens. A text without tokens gives zeros.
    """
    weights = np.ones(hidden.shape[:2], np.float32) if mask is None else np.asarray(mask, np.float32)
    sums = np.einsum("btw,bt->bw", hidden, weights)
    return np.asarray(sums / np.maximum(weights.sum(1, keepdims=True), 1), np.float32)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors [batch, width] divided by their Euclidean length; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), vectors.dtype)
