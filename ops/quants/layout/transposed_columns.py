"""Lazily transposed matrix of a row-major file: columns are read in bands, since each band touches the whole file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from ....runtime.tensor.stored_tensor import StoredTensor

BAND = 2 * 2**20
"""Bytes of a band."""
WIDE_BAND = 16 << 20
"""Bytes of a band where a whole matrix is packed: a band touches every row."""
KEPT = 4
"""Bands cached per thread: those of one layer's codes, zero points and scales."""
RUN = 32
"""Bands start at multiples of this many columns."""


class _Kept(threading.local):
    """The cached bands of a thread."""

    def __init__(self) -> None:
        self.bands: OrderedDict[tuple[int, int], tuple[Columns, npt.NDArray[Any]]] = OrderedDict()


_KEPT = _Kept()


class Columns:
    """The transpose [columns, rows] of a matrix of plain elements.

    Args:
        band: bytes that are read at once, a piece of each row.
    """

    def __init__(self, tensor: StoredTensor, band: int = BAND) -> None:
        self.tensor = tensor
        self.rows, self.width = tensor.shape
        self.dtype = tensor.dtype.as_numpy()
        fitting = band // max(1, self.rows * self.dtype.itemsize) // RUN * RUN
        self.band = (
            max(1, self.width) if tensor.storage.sequential else max(RUN, min(fitting, -(-self.width // RUN) * RUN))
        )

    def __getitem__(self, wanted: slice) -> npt.NDArray[Any]:
        """Columns `wanted.start` to `wanted.stop` as rows ``[n, rows]``, contiguous."""
        first, last = wanted.start, min(wanted.stop, self.width)
        out = np.empty((last - first, self.rows), self.dtype)
        for index in range(first // self.band, -(-last // self.band)):
            begin = index * self.band
            low, high = max(first, begin), min(last, begin + self.band)
            out[low - first : high - first] = self._band(index)[:, low - begin : high - begin].T
        return out

    def _band(self, index: int) -> npt.NDArray[Any]:
        kept, key = _KEPT.bands, (id(self), index)
        if key not in kept:
            while len(kept) >= KEPT:
                kept.popitem(last=False)
            kept[key] = (self, self._read(index * self.band, min(self.width, (index + 1) * self.band)))
        kept.move_to_end(key)
        return kept[key][1]

    def _read(self, first: int, last: int) -> npt.NDArray[Any]:
        storage, size = self.tensor.storage, self.dtype.itemsize
        if last - first == self.width:
            data = np.frombuffer(storage.read(0, storage.nbytes), np.uint8)
            return data.view(self.dtype.newbyteorder("<")).reshape(self.rows, self.width)
        out = np.empty((self.rows, (last - first) * size), np.uint8)
        for row, line in enumerate(out):
            begin = (row * self.width + first) * size
            line[:] = np.frombuffer(storage.read(begin, begin + line.size), np.uint8)
        return out.view(self.dtype.newbyteorder("<"))
