"""Weights that the samples of formats hold."""

from pathlib import Path

import numpy as np


def arrays() -> dict[str, np.ndarray]:
    """Weights of several dtypes and shapes that every format can hold."""
    rng = np.random.default_rng(0)
    return {
        "model.embed.weight": rng.standard_normal((4, 6)).astype(np.float32),
        "model.norm.weight": rng.standard_normal(5).astype(np.float16),
        "model.ids": np.arange(7, dtype=np.int32),
    }


def written(path: Path, data: bytes) -> Path:
    """Write a file; its path."""
    path.write_bytes(data)
    return path
