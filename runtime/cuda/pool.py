"""One pool for each device: weights that are uploaded once whoever uses them, arenas that runs borrow, and memory that is used again."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LimitError
from ..launch import ALIGNMENT
from .machine import SIMULATED
from .memory import Memory, put

if TYPE_CHECKING:
    from .plan import Plan

SMALL, FINE, COARSE = 1 << 20, 1 << 6, 1 << 21
"""Sizes up to SMALL are rounded up to multiples of FINE, larger ones to multiples of COARSE, so that freed memory fits again."""


HINT = "Feed smaller inputs, take a smaller or quantized model, leave layers to the CPU (--gpu-layers), or run with --device cpu"


class Piece:
    """Device memory that its pool counts as long as this object lives, and uses again afterwards.

    Attributes:
        bytes: numba-cuda's array of uint8.
        number: of the device.
    """

    def __init__(self, pool: Pool, nbytes: int) -> None:
        self.number = pool.number
        whole = pool.found(nbytes)
        self.bytes = whole[:nbytes]
        weakref.finalize(self, pool.back, whole)


class Weight(Piece):
    """An array of the host on the device; it keeps the array, whose identity stands for its values."""

    def __init__(self, pool: Pool, array: np.ndarray) -> None:
        super().__init__(pool, array.nbytes)
        self.array = array
        put(self.bytes, array.reshape(-1).view(np.uint8))


class Arena(Piece):
    """Memory for the values of one run at a time, whatever its plan, and what each plan has made of it."""

    def __init__(self, pool: Pool, nbytes: int) -> None:
        super().__init__(pool, nbytes)
        self.nbytes = nbytes
        self._memories: weakref.WeakKeyDictionary[Plan, Memory] = weakref.WeakKeyDictionary()

    def memory(self, plan: Plan, share: Share) -> Memory:
        """What a run of the plan works in."""
        found = self._memories.get(plan)
        if found is None:
            found = self._memories[plan] = Memory(plan, share, self)
        return found


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

    def found(self, nbytes: int) -> Any:
        """At least so many bytes, freed ones where they fit."""
        size = rounded(nbytes)
        with self._lock:
            self.held += size
            waiting = self._free.get(size)
            if waiting:
                self.kept -= size
                return waiting.pop()
        return self._new(size)

    def _new(self, size: int) -> Any:
        from numba import cuda

        with cuda.gpus[self.number]:
            try:
                return cuda.device_array(size, np.uint8)
            except _short():
                self.trim()
            try:
                return cuda.device_array(size, np.uint8)
            except _short() as error:
                self.held -= size
                raise LimitError("E-DEVICE-MEMORY", None, f"the device has no {size:,} bytes left: {error}", hint=HINT) from error

    def back(self, whole: Any) -> None:
        """Memory that nobody has any more."""
        size = whole.size
        with self._lock:
            self.held -= size
            self.kept += size
            self._free.setdefault(size, []).append(whole)

    def trim(self) -> None:
        """Give the device what nobody has, arenas that wait included."""
        with self._lock:
            self._arenas = []
            gc.collect()
            self._free, self.kept = {}, 0

    def take(self, nbytes: int) -> Arena:
        """The smallest arena that waits and has so many bytes, else a new one."""
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
        """Take an arena back."""
        with self._lock:
            self._arenas.append(arena)

    def waiting(self) -> int:
        """Bytes of the arenas that wait."""
        return sum(rounded(arena.nbytes) for arena in self._arenas)

    def weight(self, array: np.ndarray) -> Weight:
        """An array on the device, uploaded when it is first asked for."""
        with self._lock:
            found = self._weights.get(id(array))
            if found is None:
                found = self._weights[id(array)] = Weight(self, array)
            return found

    def lacks(self, plan: Plan) -> int:
        """Bytes of a plan's weights that are not on the device."""
        return sum(array.nbytes for key, array in plan.weights.items() if key not in self._weights)

    def free(self) -> int | None:
        """Bytes that the device has left, those that can be used again included; None under the simulator."""
        if SIMULATED:
            return None
        from numba import cuda

        with cuda.gpus[self.number]:
            return int(cuda.current_context().get_memory_info()[0]) + self.kept


def _short() -> type[Exception]:
    """What is raised where memory is short."""
    if SIMULATED:
        return MemoryError
    from numba.cuda.cudadrv.driver import CudaAPIError

    error: type[Exception] = CudaAPIError
    return error


def rounded(nbytes: int) -> int:
    """Bytes that are taken for so many."""
    unit = FINE if nbytes <= SMALL else COARSE
    return max(1, -(-nbytes // unit)) * unit


@functools.cache
def pool_of(number: int) -> Pool:
    """The pool of a device."""
    return Pool(number)


class Share:
    """What one session uses of a device's memory.

    Attributes:
        limit: bytes that all sessions may hold there together when this one adds to them; None for what is free.
    """

    def __init__(self, pool: Pool, limit: int | None = None) -> None:
        self.pool = pool
        self.limit = limit

    @property
    def number(self) -> int:
        """Of the device."""
        return self.pool.number

    def left(self) -> int | None:
        """Bytes that may still be held; None where nothing limits them."""
        if self.limit is not None and self.pool.held:
            gc.collect()
        found = [] if self.limit is None else [self.limit - self.pool.held + self.pool.waiting()]
        free = self.pool.free()
        return min(found if free is None else [*found, free + self.pool.waiting()], default=None)

    def check(self, plan: Plan) -> None:
        """Raise LimitError when a plan's weights and values do not fit beside what is held."""
        new, values = self.pool.lacks(plan), plan.arena
        left = self.left()
        if left is not None and new + values > left:
            raise LimitError(
                "E-DEVICE-MEMORY", None,
                f"this graph needs {new + values:,} more bytes on the device ({new:,} of weights, {values:,} of values)",
                found=f"{max(0, left):,} bytes free",
                hint=HINT,
            )

    def take(self, plan: Plan) -> Arena:
        """An arena for one run of a plan, to be given back."""
        return self.pool.take(plan.arena + ALIGNMENT)

    def give(self, arena: Arena) -> None:
        """Give an arena back."""
        self.pool.give(arena)

    def weight(self, array: np.ndarray) -> Weight:
        """An array on the device."""
        return self.pool.weight(array)

    def piece(self, nbytes: int) -> Piece:
        """New memory, which is the caller's."""
        return Piece(self.pool, nbytes)
