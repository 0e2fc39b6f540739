"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28 bytes."""

from __future__ import annotations

import gzip
import os
import zlib

import numpy as np

from ....runtime.base.errors import FormatError
from .local_file import Arrays, local_file

__all__ = ["load_data"]
ADDRESS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
SIDE = 28
MAX_BYTES = 1 << 26
"""Of an unpacked file, which has 47 MB."""


def load_data() -> tuple[Arrays, Arrays]:
    """``(x_train, y_train), (x_test, y_test)`` of the four files in ``fashion-mnist`` of Keras' folder.

    Raises FileAccessError without a file, FormatError for a damaged one.
    """
    return _part("train"), _part("t10k")


def _part(name: str) -> Arrays:
    labels = _bytes(f"{name}-labels-idx1-ubyte.gz", 8)
    pictures = _bytes(f"{name}-images-idx3-ubyte.gz", 16)
    if len(pictures) != len(labels) * SIDE * SIDE:
        why = f"{len(pictures)} bytes are not {len(labels)} pictures of {SIDE} x {SIDE}"
        raise FormatError("E-KERAS-DATA", f"{name}-images-idx3-ubyte.gz", why)
    return pictures.reshape(len(labels), SIDE, SIDE), labels


def _bytes(name: str, header: int) -> np.ndarray:
    """The bytes after the header of an IDX file."""
    path = local_file(os.path.join("fashion-mnist", name), ADDRESS + name)
    try:
        with gzip.open(path) as file:
            content = file.read(MAX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError("E-KERAS-DATA", str(path), f"not an IDX file: {error}") from error
    return np.frombuffer(content, np.uint8, offset=min(header, len(content)))


def __dir__() -> list[str]:
    return list(__all__)
