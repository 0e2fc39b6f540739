"""MNIST: 70,000 digits of 28 x 28 bytes."""

from __future__ import annotations

import os

from .local_file import Arrays, arrays_of, local_file

__all__ = ["load_data"]
ADDRESS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"


def load_data(path: str | os.PathLike[str] = "mnist.npz") -> tuple[Arrays, Arrays]:
    """``(x_train, y_train), (x_test, y_test)`` of a file in Keras' folder, or at a path.

    Raises FileAccessError without the file.
    """
    names = ("x_train", "y_train", "x_test", "y_test")
    x_train, y_train, x_test, y_test = arrays_of(local_file(path, ADDRESS), names)
    return (x_train, y_train), (x_test, y_test)


def __dir__() -> list[str]:
    return list(__all__)
