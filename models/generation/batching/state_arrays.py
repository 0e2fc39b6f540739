"""State arrays: one array [slots, ...] for each decoder state; memory is taken page by page, as tokens are written."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.ir.graph import Value
from ...layers.sliding_window import window_of
from ..decoder_states import growing_axis, state_shape
from ..prefill_chunk import MAX_CHUNK

MAP_NORESERVE = 0x4000
"""Flag of Linux: address space without a claim on memory; the standard library has no name for it."""


class StateArrays:
    """States of several sequences, each in its slot.

    Args:
        values: the states, graph inputs.
        dtypes: by name.
        capacity: most tokens of a slot.

    Attributes:
        arrays: [slots, ...] by name.
        token_nbytes: bytes that a further token of a slot takes.
        row_nbytes: bytes of a slot whatever its tokens: recurrent states and ring buffers.
        ring: tokens of the shortest ring buffer; None without one.
        recurrent: whether any state is neither a KV cache nor a ring buffer.
    """

    def __init__(self, values: Sequence[Value], dtypes: Mapping[str, np.dtype[Any]], slots: int, capacity: int) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._axes = {value.name: growing_axis(value) for value in values}
        self.token_nbytes = self.row_nbytes = 0
        rings: list[int] = []
        self.recurrent = False
        for value in values:
            shape, dtype = state_shape(value, slots, capacity, MAX_CHUNK), dtypes[value.name]
            self._allocate(value.name, shape, dtype)
            nbytes, axis = math.prod(shape[1:]) * dtype.itemsize, self._axes[value.name]
            if axis is not None:
                self.token_nbytes += nbytes // shape[axis]
                continue
            self.row_nbytes += nbytes
            ring = [shape[index] for index, dim in enumerate(value.shape or ()) if index and window_of(dim) is not None]
            rings += ring
            self.recurrent |= not ring
        self.ring = min(rings, default=None)

    def _allocate(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        made = mmap.mmap(-1, max(math.prod(shape) * dtype.itemsize, 1), flags=flags)
        with contextlib.suppress(OSError):  # kernels without huge pages do not know it
            made.madvise(mmap.MADV_NOHUGEPAGE)
        self._maps[name] = made
        self.arrays[name] = np.frombuffer(made, dtype, math.prod(shape)).reshape(shape)

    def rows(self, first: int, count: int) -> dict[str, np.ndarray]:
        """The states of adjacent slots, as views."""
        return {name: array[first : first + count] for name, array in self.arrays.items()}

    def clear(self, slot: int) -> None:
        """Zero a slot and give its pages back to the system."""
        for name, array in self.arrays.items():
            row = array[slot]
            first = slot * row.nbytes
            begin, end = (
                -(-first // mmap.PAGESIZE) * mmap.PAGESIZE,
                (first + row.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE,
            )
            if begin >= end:
                row[...] = 0
                continue
            flat = row.reshape(-1).view(np.uint8)
            flat[: begin - first] = flat[end - first :] = 0
            self._maps[name].madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the states after `length` tokens to another slot."""
        for name, array in self.arrays.items():
            used = self._used(name, length)
            array[target][used] = array[source][used]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange two slots that have at most `length` tokens."""
        for name, array in self.arrays.items():
            used = self._used(name, length)
            kept = array[one][used].copy()
            array[one][used] = array[other][used]
            array[other][used] = kept

    def _used(self, name: str, length: int) -> tuple[slice, ...]:
        axis = self._axes[name]
        return () if axis is None else (*[slice(None)] * (axis - 1), slice(length))
