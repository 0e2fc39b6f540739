"""Values of a tensor or a slice as NumPy arrays, read in chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...runtime.tensor.block_codec import codecs
from ...runtime.tensor.dtype import BF16, DType
from ...runtime.tensor.element_packing import unpack
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor

if TYPE_CHECKING:
    import numpy as np


def load(dtypes: Iterable[DType] = (BF16,)) -> None:
    """Import what computes with elements of these types; threads that did it at the same moment could meet one half of
    it."""
    import numpy

    if any(dtype.numpy is not None and not hasattr(numpy, dtype.numpy) for dtype in dtypes):
        import ml_dtypes  # noqa: F401


def plain(tensor: StoredTensor) -> StoredTensor | None:
    """The tensor as numbers that numpy has, blocks decoded when they are read; None for strings, and where nothing can
    decode it."""
    if tensor.qtype is not None:
        return tensor.dequantize() if tensor.qtype in codecs() else None
    return None if tensor.dtype.numpy is None or not tensor.dtype.block_nbytes else tensor


def unit(tensor: StoredTensor) -> int:
    """Elements between two positions where a plain tensor may be cut."""
    return tensor.unit // tensor.dtype.block_nbytes * tensor.dtype.block


def read(tensor: StoredTensor, start: int, stop: int) -> np.ndarray:
    """Elements `start` to `stop` of a plain tensor, flat, in its own numpy type."""
    step = unit(tensor)
    low, high = start // step * step, min(tensor.count, -(-stop // step) * step)
    first, last = (position // tensor.dtype.block * tensor.dtype.block_nbytes for position in (low, high))
    values = unpack(tensor.storage.read(first, last), tensor.dtype, high - low)
    return values[start - low : stop - low]


def wide(values: np.ndarray) -> np.ndarray:
    """The values in a type that holds them exactly: float64, complex128, and for 64-bit integers the longest float
    there is."""
    import numpy

    if values.dtype.kind == "c":
        return values.astype(numpy.complex128)
    return values.astype(
        numpy.longdouble if values.dtype.kind in "iu" and values.dtype.itemsize == 8 else numpy.float64
    )


def parts(tensor: StoredTensor, axes: Sequence[range]) -> Iterator[np.ndarray]:
    """The selected elements of a plain tensor in row order, flat, at most about `CHUNK` bytes read at a time.

    Args:
        axes: the selected indices of every dimension, in steps of any sign.
    """
    if not all(axes):
        return
    if not axes:
        yield read(tensor, 0, 1)
        return
    most = max(1, CHUNK * 8 // tensor.dtype.bits)
    split = next(axis for axis in range(1, len(axes) + 1) if math.prod(tensor.shape[axis:]) <= most)
    strides = [math.prod(tensor.shape[axis + 1 :]) for axis in range(split)]
    walked, tile = axes[split - 1], strides[-1]
    together = max(1, most // (tile * abs(walked.step)))
    inner = tuple(_slice(axis) for axis in axes[split:])
    for position in itertools.product(*axes[: split - 1]):
        base = sum(index * stride for index, stride in zip(position, strides, strict=False))
        for first in range(0, len(walked), together):
            rows = walked[first : first + together]
            low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1
            values = read(tensor, base + low * tile, base + high * tile).reshape(high - low, *tensor.shape[split:])
            yield values[:: rows.step][(slice(None), *inner)].reshape(-1)


def _slice(axis: range) -> slice:
    stop = axis[-1] + (1 if axis.step > 0 else -1)
    return slice(axis[0], None if stop < 0 else stop, axis.step)
