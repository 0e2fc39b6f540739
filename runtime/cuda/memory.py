"""Device memory: weights that are uploaded once, and the arena that a run's values share."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ..errors import LimitError
from ..launch import ALIGNMENT, Buffer
from .array import DeviceArray
from .coded import seen_as
from .element import holds, stored
from .machine import SIMULATED
from .planner import Plan


class Pool:
    """The memory of one device that a session holds.

    Attributes:
        number: of the device.
        limit: bytes that may be held; None for what is free.
        held: bytes that are.
    """

    def __init__(self, number: int, limit: int | None = None) -> None:
        self.number = number
        self.limit = limit
        self.held = 0
        self._weights: dict[int, tuple[np.ndarray, Any]] = {}
        self._lock = threading.RLock()

    def check(self, plan: Plan) -> None:
        """Raise LimitError when a plan's weights and values do not fit beside what is held."""
        new = sum(array.nbytes for key, array in plan.weights.items() if key not in self._weights)
        need = new + plan.arena
        left = self.left()
        if left is not None and need > left:
            raise LimitError(
                "E-DEVICE-MEMORY", None, f"this graph needs {need:,} more bytes on the device ({new:,} of weights, {plan.arena:,} of values)",
                found=f"{max(0, left):,} bytes free",
                hint="Feed smaller inputs, take a smaller or quantized model, leave layers to the CPU (--gpu-layers), or run with --device cpu",
            )

    def left(self) -> int | None:
        """Bytes that may still be held; None where nothing limits them."""
        return self.limit - self.held if self.limit is not None else None if SIMULATED else self._free()

    def _free(self) -> int:
        from numba import cuda

        with cuda.gpus[self.number]:
            return int(cuda.current_context().get_memory_info()[0])

    def room(self, nbytes: int) -> Any:
        """New memory as bytes, which is held as long as the session."""
        self.held += nbytes
        return self.alone(nbytes)

    def alone(self, nbytes: int) -> Any:
        """New memory as bytes, which is the caller's."""
        from numba import cuda

        with cuda.gpus[self.number]:
            return cuda.device_array(nbytes, np.uint8)

    def weight(self, array: np.ndarray) -> Any:
        """The bytes of an array, uploaded when they are first asked for."""
        with self._lock:
            found = self._weights.get(id(array))
            if found is None:
                made = self.room(array.nbytes)
                put(made, array.reshape(-1).view(np.uint8))
                found = self._weights[id(array)] = (array, made)
            return found[1]


def put(target: Any, source: np.ndarray) -> None:
    """Fill device bytes with those of an array of bytes."""
    target.copy_to_device(source)


def fetched(source: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """A new array with the bytes of a flat device array."""
    host: np.ndarray = source.copy_to_host()
    return host.view(np.uint8).view(dtype).reshape(shape)


def flat(base: Any, start: int, count: int, dtype: np.dtype[Any]) -> Any:
    """`count` elements of device bytes from byte `start` on, in the dtype that kernels see."""
    return base[start : start + count * dtype.itemsize].view(dtype)


class Memory:
    """What one run of a plan works in."""

    def __init__(self, plan: Plan, pool: Pool) -> None:
        self.plan = plan
        self.pool = pool
        self.arena = pool.room(plan.arena + ALIGNMENT)
        self.weights = {key: pool.weight(array) for key, array in plan.weights.items() if array.nbytes}
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

    def upload(self, buffer: Buffer, array: np.ndarray) -> None:
        """Copy an array to the device."""
        put(self.view(buffer), np.ascontiguousarray(array).reshape(-1).view(stored(buffer.dtype).storage))

    def kept(self, buffer: Buffer) -> DeviceArray:
        """A copy of a buffer on the device, which outlasts the run."""
        made = self.pool.alone(buffer.nbytes)
        if buffer.nbytes:
            made.copy_to_device(self.view(buffer).view(np.dtype(np.uint8)))
        return DeviceArray(buffer.dtype, buffer.shape, made)

    def uploaded(self, found: Any) -> Any:
        """A result of the CPU on the device; what is no array of a kernel's dtype stays as it is."""
        if not isinstance(found, np.ndarray) or not holds(found.dtype):
            return found
        made = self.pool.alone(found.nbytes)
        if found.nbytes:
            put(made, np.ascontiguousarray(found).reshape(-1).view(np.uint8))
        return DeviceArray(found.dtype, found.shape, made)

    def download(self, buffer: Buffer) -> np.ndarray:
        """Copy a buffer to the host; waits for what computes it."""
        return fetched(self.view(buffer), buffer.dtype, buffer.shape)
