"""Boston housing: 506 rows of 13 numbers, and prices."""

from __future__ import annotations

import os

from .local_file import Arrays, arrays_of, local_file, split

__all__ = ["load_data"]
ADDRESS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/boston_housing.npz"


def load_data(
    path: str | os.PathLike[str] = "boston_housing.npz", test_split: float = 0.2, seed: int = 113
) -> tuple[Arrays, Arrays]:
    """``(x_train, y_train), (x_test, y_test)`` of a file in Keras' folder, or at a path.

    Raises FileAccessError without the file.
    """
    x, y = arrays_of(local_file(path, ADDRESS), ("x", "y"))
    return split(x, y, test_split, seed)


def __dir__() -> list[str]:
    return list(__all__)
