"""Strided views: tensors not in row-major order (Fortran order, transposed, expanded), gathered on read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..base.errors import FormatError
from ..base.units import counted
from .storage import Derived, Storage

if TYPE_CHECKING:
    import numpy as np

GATHER = 16 * 2**20
"""Bytes of the underlying storage that are read at once where the elements of a part are far apart."""
BLOCK = 2**20
"""The most bytes of the view that are only read together."""


def is_row_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides (in elements) are those of a packed row-major array; dimensions of length 1 may have any."""
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def strided(
    storage: Storage, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> Storage:
    """The row-major bytes of a view: element ``index`` lies at element ``offset + sum(index * strides)`` of `storage`.

    Args:
        itemsize: bytes of an element.
        shape, strides: the view, strides in elements and not negative.
        offset: first element of the view.

    Raises:
        FormatError: a stride or the offset is negative, or the view goes past the storage's end.
    """
    count = math.prod(shape)
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if offset < 0 or any(stride < 0 for stride in strides):
        raise FormatError("E-VIEW-NEGATIVE", None, f"a view has offset {offset} and strides {strides}")
    if count and (last + 1) * itemsize > storage.nbytes:
        need = f"{counted((last + 1) * itemsize, 'byte')}"
        raise FormatError(
            "E-VIEW-RANGE", None, "a view goes past its storage", expected=need, found=f"{storage.nbytes:,}"
        )
    view = _View(storage, itemsize, shape or (1,), strides or (1,), offset)
    key = None if storage.key is None else (storage.key, itemsize, shape, strides, offset)
    return Derived(count * itemsize, 1, view.read, key, sequential=storage.sequential)


class _View:
    """The view as a list of blocks in row order: the trailing axes that fit in `BLOCK`, one for each index of the
    leading axes."""

    def __init__(
        self, storage: Storage, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        self.storage = storage
        self.itemsize = itemsize
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.leading = next(
            axes
            for axes in range(1, len(shape) + 1)
            if math.prod(shape[axes:]) * itemsize <= BLOCK or axes == len(shape)
        )
        self.block = math.prod(shape[self.leading :]) * itemsize

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes `start` to `stop` of the view."""
        import numpy

        first, end = start // self.block, -(-stop // self.block)
        out = numpy.empty((end - first) * self.block, numpy.uint8)
        filled = 0
        for data in self._runs(first, end):
            out[filled : filled + data.size] = data
            filled += data.size
        return out.data[start - first * self.block : stop - first * self.block]

    def _runs(self, first: int, end: int) -> Iterator[np.ndarray]:
        """Blocks `first` to `end`, in runs along the last leading axis."""
        axis = self.leading - 1
        length = self.shape[axis]
        while first < end:
            outer, low = divmod(first, length)
            high = min(length, low + end - first)
            offset = self.offset + low * self.strides[axis]
            for step, stride in zip(reversed(self.shape[:axis]), reversed(self.strides[:axis]), strict=True):
                outer, index = divmod(outer, step)
                offset += index * stride
            yield self._gathered((high - low, *self.shape[self.leading :]), self.strides[axis:], offset)
            first += high - low

    def _gathered(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> np.ndarray:
        """A part in row order, as bytes. Axes of large stride are walked until what is read at once is small."""
        import numpy

        out = numpy.empty((*shape, self.itemsize), numpy.uint8)
        axes = sorted(range(len(shape)), key=lambda axis: -strides[axis])
        walked: list[int] = []
        while self._extent(shape, strides, walked) > max(GATHER, 4 * out.nbytes):
            walked.append(axes[len(walked)])
        inner = tuple(1 if axis in walked else length for axis, length in enumerate(shape))
        size = self._extent(shape, strides, walked)
        for position in itertools.product(*(range(shape[axis]) for axis in walked)):
            at = dict(zip(walked, position, strict=True))
            start = offset + sum(step * strides[axis] for axis, step in at.items())
            data = numpy.frombuffer(self.storage.read(start * self.itemsize, start * self.itemsize + size), numpy.uint8)
            view = numpy.lib.stride_tricks.as_strided(
                data, (*inner, self.itemsize), (*(stride * self.itemsize for stride in strides), 1)
            )
            out[tuple(slice(at[axis], at[axis] + 1) if axis in at else slice(None) for axis in range(len(shape)))] = (
                view
            )
        return out.reshape(-1)

    def _extent(self, shape: tuple[int, ...], strides: tuple[int, ...], walked: list[int]) -> int:
        """Bytes of storage between the first and the last element of a part whose `walked` axes stand still."""
        span = sum(
            (length - 1) * stride
            for axis, (length, stride) in enumerate(zip(shape, strides, strict=True))
            if axis not in walked
        )
        return (span + 1) * self.itemsize


def swapped(storage: Storage, itemsize: int) -> Storage:
    """Big-endian elements as little-endian ones (for complex numbers `itemsize` is that of one part)."""

    def read(start: int, stop: int) -> memoryview:
        import numpy

        data = numpy.frombuffer(storage.read(start, stop), dtype=f">u{itemsize}")
        return data.astype(f"<u{itemsize}").view(numpy.uint8).data

    key = None if storage.key is None else (storage.key, "swapped", itemsize)
    return Derived(storage.nbytes, itemsize, read, key, sequential=storage.sequential)
