"""Files of data sets: in Keras' folder, or at a path."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from ....runtime.base.errors import FileAccessError, FormatError

Arrays = tuple[np.ndarray, np.ndarray]


def local_file(path: str | os.PathLike[str], address: str) -> Path:
    """The file at a path, or of this name in Keras' folder ``~/.keras/datasets``.

    Raises FileAccessError without one, with the address that Keras downloads it from.
    """
    wanted = Path(os.path.expanduser("~"), ".keras", "datasets", path)
    for file in (Path(path), wanted):
        if file.is_file():
            return file
    hint = f"Download {address} to {wanted}, or pass the path of the file"
    raise FileAccessError("E-IO-OPEN", str(wanted), "no such file", hint=hint)


def arrays_of(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Arrays of an npz file; FormatError for another file, without these arrays, or with objects."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError("E-KERAS-DATA", str(path), f"not an npz file of {', '.join(names)}: {error}") from error


def split(x: np.ndarray, y: np.ndarray, test_split: float, seed: int) -> tuple[Arrays, Arrays]:
    """Rows in the order of Keras for a seed: those to train with, and those to test with."""
    if not 0 <= test_split < 1:
        raise ValueError(f"test_split is {test_split}, not a share from 0 to 1")
    order = np.arange(len(x))
    np.random.RandomState(seed).shuffle(order)
    x, y = x[order], y[order]
    first = int(len(x) * (1 - test_split))
    return (x[:first], y[:first]), (x[first:], y[first:])
