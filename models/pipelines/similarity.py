"""Similarity of vectors, by sentence-transformers' names."""

from __future__ import annotations

import numpy as np

from .pooling import normalized


def similarities(left: np.ndarray, right: np.ndarray, kind: str = "cosine") -> np.ndarray:
    """Scores f32 [rows of left, rows of right], higher for vectors that are more alike.

    Args:
        kind: ``cosine``, ``dot``, or the negative distance ``euclidean`` or ``manhattan``.
    """
    if kind in ("cosine", "dot"):
        a, b = (normalized(left), normalized(right)) if kind == "cosine" else (left, right)
        return np.asarray(a @ b.T, np.float32)
    norm = 2 if kind == "euclidean" else 1
    return np.stack([-np.linalg.norm(right - row, norm, axis=-1) for row in left]).astype(np.float32)
