"""Pooling: one vector for each text, from the hidden states of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Names of poolings, as sentence-transformers has them."""


def pooled(hidden: np.ndarray, mask: ArrayLike | None, modes: Sequence[str], skipped: int = 0) -> np.ndarray:
    """Vectors f32 [batch, width x modes] of hidden states [batch, length, width]: those of each mode side by side.

    Args:
        mask: [batch, length], 1 for tokens, 0 for padding on either side; None if all are tokens.
        modes: of `MODES`.
        skipped: tokens at the start of each text that do not count: those of a prompt.
    """
    whole = np.ones(hidden.shape[:2], bool) if mask is None else np.asarray(mask) != 0
    first = whole.argmax(1)[:, None]
    counted = whole & (np.arange(hidden.shape[1]) >= first + skipped) if skipped else whole
    return np.concatenate([_pooled(hidden, whole, counted, mode) for mode in modes], axis=-1)


def _pooled(hidden: np.ndarray, whole: np.ndarray, counted: np.ndarray, mode: str) -> np.ndarray:
    rows = np.arange(len(hidden))
    if mode == "cls":
        return np.asarray(hidden[rows, counted.argmax(1)], np.float32)
    if mode == "lasttoken":
        last = hidden.shape[1] - 1 - counted[:, ::-1].argmax(1)
        return np.asarray(hidden[rows, last] * counted.any(1, keepdims=True), np.float32)
    if mode == "max":
        return np.asarray(np.where(counted[..., None], hidden, -np.inf).max(1), np.float32)
    if mode == "weightedmean":
        positions = np.arange(1, hidden.shape[1] + 1) - whole.argmax(1)[:, None]
        return weighted_mean(hidden, counted * positions.astype(np.float32))
    means = mean_pooled(hidden, counted)
    return means * np.sqrt(counted.sum(1, keepdims=True), dtype=np.float32) if mode == "mean_sqrt_len_tokens" else means


def mean_pooled(hidden: np.ndarray, mask: ArrayLike | None = None) -> np.ndarray:
    """The mean of hidden states [batch, length, width] over each text's tokens, f32 [batch, width].

    Args:
        mask: [batch, length], 1 for tokens, 0 for padding; None if all are tokens. A text without tokens gives zeros.
    """
    return weighted_mean(hidden, np.ones(hidden.shape[:2], np.float32) if mask is None else np.asarray(mask))


def weighted_mean(hidden: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of hidden states [batch, length, width] with weights [batch, length], f32 [batch, width]; zeros where
    all weights are zero."""
    weights = np.asarray(weights, np.float32)
    sums = np.matmul(weights[:, None], np.asarray(hidden, np.float32))[:, 0]
    totals = weights.sum(1, keepdims=True)
    return np.asarray(sums / np.where(totals > 0, totals, 1), np.float32)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors [batch, width] divided by their Euclidean length; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), vectors.dtype)
