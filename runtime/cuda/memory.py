"""What one run of a plan works in: the views of its buffers, and copies to and from the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..launch import Buffer, Room
from .array import DeviceArray
from .coded import seen_as
from .element import holds, stored
from .machine import SIMULATED
from .sized import Sized

if TYPE_CHECKING:
    from .plan import Plan
    from .pool import Arena, Share


def put(target: Any, source: np.ndarray) -> None:
    """Fill device bytes with those of an array of bytes."""
    if source.size:
        target.copy_to_device(source)


def address(data: Any) -> int:
    """Of the first byte of device bytes."""
    return int(data._ary.ctypes.data) if SIMULATED else int(data.__cuda_array_interface__["data"][0])


WORKED = 256
"""What libraries want the memory that they work in to begin at a multiple of; some of their kernels fail otherwise."""


def workspace(nbytes: int) -> Buffer:
    """So much memory for a library, wherever it lies in an arena."""
    return Buffer(np.dtype(np.uint8), (nbytes + WORKED,), Room(nbytes + WORKED))


def worked(data: Any) -> int:
    """Where in the memory of `workspace` a library works."""
    return -(-address(data) // WORKED) * WORKED


def fetched(source: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """A new array with the bytes of a flat device array."""
    if not source.size:
        return np.zeros(shape, dtype)
    host: np.ndarray = source.copy_to_host()
    return host.view(np.uint8).view(dtype).reshape(shape)


def flat(base: Any, start: int, count: int, dtype: np.dtype[Any]) -> Any:
    """`count` elements of device bytes from byte `start` on, in the dtype that kernels see."""
    return base[start : start + count * dtype.itemsize].view(dtype)


class Memory:
    """An arena as one plan uses it; a plan and its weights last at least as long.

    Attributes:
        slots: bytes of the inputs that are on the device.
    """

    def __init__(self, plan: Plan, share: Share, arena: Arena) -> None:
        for key, array in plan.weights.items():
            if array.nbytes and key not in plan.uploaded:
                plan.uploaded[key] = share.weight(array)
        self.share = share
        self.arena = arena.bytes
        self.weights = {key: weight.bytes for key, weight in plan.uploaded.items()}
        self.slots: list[Any] = [None] * len(plan.fed)
        self._views: dict[int, Any] = {}

    def view(self, buffer: Buffer) -> Any:
        """A buffer as a flat array of its storage dtype."""
        room = buffer.room
        kind, count = seen_as(buffer)
        if room.slot is not None:
            return flat(self.slots[room.slot], buffer.offset, count, kind)
        found = self._views.get(id(buffer))
        if found is None:
            base, start = (self.weights[id(room.constant)], 0) if room.constant is not None else (self.arena, room.at)
            found = self._views[id(buffer)] = flat(base, start + buffer.offset, count, kind)
        return found

    def addresses(self) -> tuple[int, ...]:
        """Where its arrays lie that another run may have elsewhere: the arena, and the inputs that are on the device."""
        return tuple(address(data) for data in (self.arena, *self.slots) if data is not None)

    def upload(self, buffer: Buffer, array: np.ndarray) -> None:
        """Copy an array to the device."""
        put(self.view(buffer), np.ascontiguousarray(array).reshape(-1).view(stored(buffer.dtype).storage))

    def fill(self, buffer: Buffer, array: DeviceArray) -> None:
        """Copy an array that is on the device."""
        if buffer.nbytes:
            self.view(buffer).view(np.dtype(np.uint8)).copy_to_device(array.bytes)

    def array(self, home: Buffer | Sized) -> DeviceArray:
        """A value of the run, which lasts as long as the run; waits for its length where kernels find it."""
        if isinstance(home, Buffer):
            return DeviceArray.of(home, self)
        shape = home.shape(int(self.download(home.count)[0]))
        most = DeviceArray.of(home.buffer, self)
        return DeviceArray(most.dtype, shape, most.bytes[: math.prod(shape) * most.dtype.itemsize])

    def kept(self, buffer: Buffer) -> DeviceArray:
        """A copy of a buffer on the device, which outlasts the run."""
        made = self.share.piece(buffer.nbytes)
        if buffer.nbytes:
            made.bytes.copy_to_device(self.view(buffer).view(np.dtype(np.uint8)))
        return DeviceArray(buffer.dtype, buffer.shape, made.bytes, made)

    def uploaded(self, found: Any) -> Any:
        """A result of the CPU on the device; what is no array of a kernel's dtype stays as it is."""
        return uploaded(found, self.share)

    def download(self, buffer: Buffer) -> np.ndarray:
        """Copy a buffer to the host; waits for what computes it."""
        return fetched(self.view(buffer), buffer.dtype, buffer.shape)


def uploaded(found: Any, share: Share) -> Any:
    """An array on the device; what is no array of a kernel's dtype stays as it is."""
    if not isinstance(found, np.ndarray) or not holds(found.dtype):
        return found
    made = share.piece(found.nbytes)
    put(made.bytes, np.ascontiguousarray(found).reshape(-1).view(np.uint8))
    return DeviceArray(found.dtype, found.shape, made.bytes, made)
