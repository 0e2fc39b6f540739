"""Device memory pool: shared weights, arenas borrowed by runs, and reuse of freed memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.errors import LimitError
from ...base.process_cache import PROCESS, process_cache
from ...plan.kernel_api import ALIGNMENT
from ..device.device import SIMULATED
from .transfer import to_device

SMALL, FINE, COARSE = 1 << 20, 1 << 6, 1 << 21
"""Sizes up to SMALL are rounded up to multiples of FINE, larger ones to multiples of COARSE, so that freed memory fits
again.
"""


HINT = (
    "Use smaller inputs, a smaller or quantized model, or fewer layers on the device (--gpu-layers), "
    "or run with --device cpu"
)


class PooledMemory:
    """Device memory that returns to its pool when this object is collected.

    Attributes:
        bytes: numba-cuda's array of uint8.
        number: of the device.
    """

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.number = pool.number
        whole = pool.allocate(nbytes)
        self.bytes = whole[:nbytes]
        weakref.finalize(self, pool.release, whole)


class Weight(PooledMemory):
    """A host array's copy on the device; it references the array, whose identity is the key."""

    def __init__(self, pool: Pool, array: np.ndarray) -> None:
        super().__init__(pool, array.nbytes)
        self.array = array
        to_device(self.bytes, array.reshape(-1).view(np.uint8))


class Arena(PooledMemory):
    """Temporaries of one run at a time, of any plan."""

    def __init__(self, pool: Pool, nbytes: int) -> None:
        super().__init__(pool, nbytes)
        self.nbytes = nbytes


class Pool:
    """The memory of one device, for all sessions of this process.

    Attributes:
        number: of the device.
        held: bytes that weights, arenas and arrays have; kept: bytes that nobody has, ready to be used again.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.held = 0
        self.kept = 0
        self._free: dict[int, list[Any]] = {}
        self._arenas: list[Arena] = []
        self._weights: weakref.WeakValueDictionary[int, Weight] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> Any:
        """An allocation of at least `nbytes` bytes, reused if possible."""
        size = allocation_size(nbytes)
        with self._lock:
            self.held += size
            freed = self._free.get(size)
            if freed:
                self.kept -= size
                return freed.pop()
        return self._new(size)

    def _new(self, size: int) -> Any:
        from numba import cuda

        with cuda.gpus[self.number]:
            try:
                return cuda.device_array(size, np.uint8)
            except out_of_memory_error():
                self.trim()
            try:
                return cuda.device_array(size, np.uint8)
            except out_of_memory_error() as error:
                self.held -= size
                raise LimitError(
                    "E-DEVICE-MEMORY", None, f"cannot allocate {size:,} bytes of device memory: {error}", hint=HINT
                ) from error

    def release(self, whole: Any) -> None:
        """Return memory to the pool."""
        size = whole.size
        with self._lock:
            self.held -= size
            self.kept += size
            self._free.setdefault(size, []).append(whole)

    def trim(self) -> None:
        """Free unused memory, including idle arenas."""
        with self._lock:
            self._arenas = []
            gc.collect()
            self._free, self.kept = {}, 0

    def take(self, nbytes: int) -> Arena:
        """The smallest idle arena of at least `nbytes` bytes, else a new one."""
        with self._lock:
            fitting = [arena for arena in self._arenas if arena.nbytes >= nbytes]
            if fitting:
                chosen = min(fitting, key=lambda arena: arena.nbytes)
                self._arenas.remove(chosen)
                return chosen
            if self._arenas:
                self._arenas.remove(max(self._arenas, key=lambda arena: arena.nbytes))
        return Arena(self, nbytes)

    def give(self, arena: Arena) -> None:
        """Return an arena."""
        with self._lock:
            self._arenas.append(arena)

    def idle_bytes(self) -> int:
        """Bytes of idle arenas."""
        return sum(allocation_size(arena.nbytes) for arena in self._arenas)

    def weight(self, array: np.ndarray) -> Weight:
        """An array on the device, uploaded at first use."""
        with self._lock:
            found = self._weights.get(id(array))
            if found is None:
                found = self._weights[id(array)] = Weight(self, array)
            return found

    def lacks(self, weights: Mapping[int, np.ndarray]) -> int:
        """Bytes of weights, by the ids of their arrays, that are not on the device."""
        return sum(array.nbytes for key, array in weights.items() if key not in self._weights)

    def free(self) -> int | None:
        """Free device memory including the pool's own, in bytes; None under the simulator."""
        if SIMULATED:
            return None
        from numba import cuda

        with cuda.gpus[self.number]:
            return int(cuda.current_context().get_memory_info()[0]) + self.kept


def out_of_memory_error() -> type[Exception]:
    """The exception raised when device memory is exhausted."""
    if SIMULATED:
        return MemoryError
    from numba.cuda.cudadrv.driver import CudaAPIError

    error: type[Exception] = CudaAPIError
    return error


def allocation_size(nbytes: int) -> int:
    """Bytes allocated for a request of `nbytes`."""
    unit = FINE if nbytes <= SMALL else COARSE
    return max(1, -(-nbytes // unit)) * unit


@process_cache(kept=PROCESS)
def pool_of(number: int) -> Pool:
    """The pool of a device."""
    return Pool(number)


class PoolShare:
    """A session's view of a device's memory.

    Attributes:
        limit: bytes that all sessions may hold there together when this one adds to them; None for what is free.
    """

    def __init__(self, pool: Pool, limit: int | None = None) -> None:
        self.pool = pool
        self.limit = limit

    @property
    def number(self) -> int:
        """Device index."""
        return self.pool.number

    def available(self) -> int | None:
        """Bytes that may still be allocated; None without a limit."""
        if self.limit is not None and self.pool.held:
            gc.collect()
        found = [] if self.limit is None else [self.limit - self.pool.held + self.pool.idle_bytes()]
        free = self.pool.free()
        return min(found if free is None else [*found, free + self.pool.idle_bytes()], default=None)

    def check(self, weights: Mapping[int, np.ndarray], values: int) -> None:
        """Raise LimitError if weights, by the ids of their arrays, and `values` bytes of temporaries do not fit into
        the remaining memory."""
        new = self.pool.lacks(weights)
        left = self.available()
        if left is not None and new + values > left:
            raise LimitError(
                "E-DEVICE-MEMORY",
                None,
                f"this graph needs {new + values:,} more bytes on the device "
                f"({new:,} of weights, {values:,} of values)",
                found=f"{max(0, left):,} bytes free",
                hint=HINT,
            )

    def take(self, nbytes: int) -> Arena:
        """An arena of `nbytes` for one run, returned with `give`."""
        return self.pool.take(nbytes + ALIGNMENT)

    def give(self, arena: Arena) -> None:
        """Return an arena."""
        self.pool.give(arena)

    def weight(self, array: np.ndarray) -> Weight:
        """An array on the device."""
        return self.pool.weight(array)

    def piece(self, nbytes: int) -> PooledMemory:
        """New memory, owned by the caller."""
        return PooledMemory(self.pool, nbytes)
