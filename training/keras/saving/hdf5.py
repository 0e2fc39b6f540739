"""HDF5 files of weights, read by h5py: only arrays that the file itself holds, of the shapes that are expected."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import Error, FileAccessError, FormatError, LimitError, UsageError
from ....runtime.base.units import counted
from ....runtime.plugin.optional_package import optional_package
from .trial_read import refuse_crashing

USE = "Keras' .h5 weights"
MAX_EXPANSION = 100
"""Bytes of an array for each byte that a file stores of it; compressed arrays of honest files have fewer."""
SPARE_BYTES = 1 << 16
"""Bytes of an array that a file need not store."""
DAMAGED = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""Exceptions of h5py for structures that a file does not have as HDF5 says."""


@contextlib.contextmanager
def opened(source: str | os.PathLike[str] | bytes, title: str) -> Iterator[Any]:
    """An HDF5 file, or its bytes.

    Raises FormatError for another kind of file and for one that is damaged, UnsupportedError without h5py.
    """
    h5py = optional_package("h5py", USE)
    given = io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source)
    if isinstance(given, str) and not os.path.isfile(given):
        raise FileAccessError("E-IO-OPEN", given, "no such file")
    refuse_crashing(given if isinstance(given, str) else source, title, MAX_EXPANSION)
    try:
        file = h5py.File(given, "r")
    except DAMAGED as error:
        raise FormatError("E-KERAS-HDF5", title, f"not an HDF5 file: {error}") from error
    with file:
        try:
            yield file
        except Error:
            raise
        except DAMAGED as error:
            why = f"damaged: {error.args[0] if error.args else type(error).__name__}"
            raise FormatError("E-KERAS-HDF5", title, why, hint="Save the model again") from error


@contextlib.contextmanager
def written(target: str | os.PathLike[str] | io.BytesIO) -> Iterator[Any]:
    """A new HDF5 file."""
    h5py = optional_package("h5py", USE)
    try:
        file = h5py.File(target if isinstance(target, io.BytesIO) else os.fspath(target), "w")
    except OSError as error:
        raise FileAccessError("E-OUT-WRITE", os.fspath(target), f"cannot be written: {error}") from error  # type: ignore[arg-type]
    with file:
        yield file


def member(group: Any, name: str) -> Any:
    """A group or an array in a group; None without it.

    Raises FormatError for links out of the file.
    """
    h5py = optional_package("h5py", USE)
    for part in filter(None, name.split("/")):
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise FormatError("E-KERAS-LINK", None, f"{part!r} is a link to another place", hint="Save the model again")
        group = group[part]
    return group


def array(item: Any, shape: Sequence[int], title: str) -> np.ndarray:
    """An array of a file.

    Raises UsageError for another shape, FormatError for elements that are elsewhere.
    """
    if not hasattr(item, "shape") or item.external is not None or item.is_virtual:
        raise FormatError("E-KERAS-LINK", None, f"{title} is not an array of the file", hint="Save the model again")
    if tuple(item.shape) != tuple(shape):
        why = f"{title} has another shape in the file"
        raise UsageError("E-NN-STATE", None, why, expected=list(shape), found=list(item.shape))
    if item.dtype.kind not in "fiu":
        raise FormatError("E-KERAS-DTYPE", None, f"{title} is an array of {item.dtype}")
    if item.nbytes > SPARE_BYTES + MAX_EXPANSION * item.id.get_storage_size():
        why = f"{title} has {counted(item.nbytes, 'byte')}, of which the file stores {item.id.get_storage_size():,}"
        raise LimitError("E-KERAS-SIZE", None, why, hint="Save the model again")
    found: np.ndarray = item[()]
    return found


def elements(file: Any) -> int:
    """Number of elements of the arrays of a file, of each at most what its stored bytes can hold."""
    h5py = optional_package("h5py", USE)
    total = 0

    def add(_: str, item: Any) -> None:
        nonlocal total
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu":
            total += min(int(item.size or 0), MAX_EXPANSION * item.id.get_storage_size() // item.dtype.itemsize)

    file.visititems(add)
    return total


def words(item: Any) -> list[str]:
    """An attribute that lists names."""
    return [each.decode() if isinstance(each, bytes) else str(each) for each in item]
