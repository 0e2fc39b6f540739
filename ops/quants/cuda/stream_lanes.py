"""CUDA stream lanes: upload, encode and download of different slices overlap, so that encoding is bound by the disk.

A lane has a stream, pinned host memory and device memory. A thread that encodes a slice borrows one and waits only for
it; the threads that write a file take its slices in order. Lanes are created on demand.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ....runtime.base.errors import LimitError
from ....runtime.cuda.device.device import device_index
from ....runtime.cuda.memory.pool import PooledMemory, PoolShare, pool_of
from ....runtime.cuda.memory.transfer import flat
from ....runtime.plan.kernel_api import ALIGNMENT

COUNT = 4
"""Lanes of a device: one uploads, one computes, one downloads, one is filled or emptied by the host."""
BYTES = np.dtype(np.uint8)
Work = Callable[[list[Any], Any, list[Any], Any], None]


class Lane:
    """A stream with its memory, which grows to the largest slice.

    Attributes:
        stream: what a slice is uploaded, encoded and downloaded on.
        there: device memory; up, down: pinned host memory.
    """

    def __init__(self, share: PoolShare) -> None:
        from numba import cuda

        self.share = share
        self.stream = cuda.stream()
        self.there: PooledMemory | None = None
        self.up = self.down = np.zeros(0, np.uint8)

    def ready(self, up: int, whole: int, down: int) -> Any:
        """Device bytes, `whole` of them, with host memory for both directions; raises LimitError where the device has
        no more."""
        self.up, self.down = (_pinned(held, nbytes) for held, nbytes in ((self.up, up), (self.down, down)))
        if self.there is None or self.there.bytes.size < whole:
            self.there = None
            left = self.share.available()
            if left is not None and whole > left:
                hint = "Allow more with --max-device-memory, or run with --device cpu"
                why = f"encoding a slice needs {whole:,} bytes on the device"
                raise LimitError("E-DEVICE-MEMORY", None, why, found=f"{max(0, left):,} bytes free", hint=hint)
            self.there = self.share.piece(whole)
        return self.there.bytes

    def run(self, sent: Sequence[np.ndarray], worked: int, back: Sequence[np.ndarray], work: Work) -> None:
        """Send arrays, compute, and fill others; waits until that is done.

        Args:
            sent: flat arrays of bytes; back: likewise, to be filled.
            worked: bytes for what lies between.
            work: launches kernels ``(device bytes of each that was sent, those between, those to be filled, stream)``.
        """
        sizes = [*(array.size for array in sent), worked, *(array.size for array in back)]
        ends = list(itertools.accumulate(map(aligned, sizes)))
        starts, middle = [0, *ends], len(sent)
        bytes_there = self.ready(starts[middle], ends[-1], ends[-1] - ends[middle])
        for array, start in zip(sent, starts, strict=False):
            self.up[start : start + array.size] = array
        views = [flat(bytes_there, start, size, BYTES) for start, size in zip(starts, sizes, strict=False)]
        try:
            bytes_there[: starts[middle]].copy_to_device(self.up[: starts[middle]], stream=self.stream)
            work(views[:middle], views[middle], views[middle + 1 :], self.stream)
            bytes_there[ends[middle] : ends[-1]].copy_to_host(self.down[: ends[-1] - ends[middle]], stream=self.stream)
        finally:
            self.stream.synchronize()
        for array, start in zip(back, starts[middle + 1 :], strict=False):
            array[:] = self.down[start - ends[middle] : start - ends[middle] + array.size]


def aligned(nbytes: int) -> int:
    """Alignment of arrays in bytes."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _pinned(held: np.ndarray, nbytes: int) -> np.ndarray:
    """Pinned host memory of at least so many bytes."""
    from numba import cuda

    found: np.ndarray = held if held.size >= nbytes else cuda.pinned_array(nbytes, np.uint8)
    return found


class Lanes:
    """Some lanes of one device, for any number of threads.

    Args:
        device: ``cuda`` or ``cuda:1``.
        limit: bytes that they may hold there, besides what others hold.
        count: of lanes that work at the same time.
    """

    def __init__(self, device: str, limit: int | None = None, count: int = COUNT) -> None:
        self.number = device_index(device)
        self.count = count
        self.limit = limit
        self._share = PoolShare(pool_of(self.number), limit)
        self._room = threading.Semaphore(count)
        self._idle: list[Lane] = []
        self._lock = threading.Lock()

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """A lane for one slice, on its device; one that fails is not used again and gives its memory back."""
        from numba import cuda

        with self._room, cuda.gpus[self.number]:
            with self._lock:
                found = self._idle.pop() if self._idle else Lane(self._share)
            yield found
            with self._lock:
                self._idle.append(found)
