"""California housing: 20,640 rows of 8 numbers, and prices."""

from __future__ import annotations

import os

from ....runtime.base.errors import UsageError
from .local_file import Arrays, arrays_of, local_file, split

__all__ = ["load_data"]
ADDRESS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/california_housing.npz"
SMALL = 600
"""Rows of the version "small"."""


def load_data(
    version: str = "large", path: str | os.PathLike[str] = "california_housing.npz", test_split: float = 0.2,
    seed: int = 113,
) -> tuple[Arrays, Arrays]:  # fmt: skip
    """``(x_train, y_train), (x_test, y_test)`` of a file in Keras' folder, or at a path.

    Args:
        version: "large" for all rows, or "small" for the first 600.

    Raises FileAccessError without the file, UsageError for another version.
    """
    if version not in ("large", "small"):
        raise UsageError("E-OPTION", None, f"version is {version!r}", expected="large or small")
    x, y = arrays_of(local_file(path, ADDRESS), ("x", "y"))
    rows = SMALL if version == "small" else len(x)
    return split(x[:rows], y[:rows], test_split, seed)


def __dir__() -> list[str]:
    return list(__all__)
