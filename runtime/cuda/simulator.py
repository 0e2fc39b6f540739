"""Numba's simulator as kernels need it: it does not warn, and the threads of a block take turns, each until it waits for the others.

So a run repeats exactly and nobody polls. Every second block begins with its last thread: a barrier that a kernel lacks shows in one of the orders.
A barrier at which only some threads wait while others wait at another one is an error, as a card would wait for ever.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

_launching = threading.Lock()
_blocks = itertools.count()


class Place(NamedTuple):
    """Of a thread in its block, or of a block in its grid."""

    x: int
    y: int
    z: int


class Worker(threading.Thread):
    """What runs a thread of a block, and once that is done another one; kernels and the simulator ask it which, by the simulator's names."""

    def __init__(self, block: Block) -> None:
        super().__init__(daemon=True)
        self._manager = block
        self.turn = threading.Semaphore(0)

    def run(self) -> None:
        """Run threads that have not begun until there are none."""
        block = self._manager
        self.blockIdx = block.place
        while block.places:
            self.threadIdx = block.places.popleft()
            self.thread_id = self.threadIdx.x + block.shape.x * (self.threadIdx.y + block.shape.y * self.threadIdx.z)
            try:
                block.function(*block.arguments)
            except Exception as error:  # whatever a kernel raises, its launch does
                block.fail(error, self.threadIdx)
        block.back.release()

    def syncthreads(self) -> None:
        """Wait until all threads of the block that are not done have come here."""
        block = self._manager
        self.line = _line(sys._getframe(1))
        block.waiting.append(self)
        block.back.release()
        self.turn.acquire()
        if block.error is not None:
            raise InterruptedError


class Block:
    """Runs a block, in the place of the simulator's own manager, which polls its threads."""

    def __init__(self, function: Callable[..., None], grid: tuple[int, int, int], shape: tuple[int, int, int], debug: bool) -> None:
        self.function = function
        self.shape = Place(*shape)
        self.back = threading.Semaphore(0)
        self.waiting: list[Worker] = []
        self.error: Exception | None = None

    def run(self, place: tuple[int, int, int], *arguments: Any) -> None:
        """Compute the block at a place of the grid; raises what a thread raises."""
        self.place = Place(*place)
        self.places = deque(Place(*at) for at in np.ndindex(*self.shape))
        if next(_blocks) % 2:
            self.places.reverse()
        self.arguments = arguments
        workers = []
        while self.places:
            workers.append(Worker(self))
            workers[-1].start()
            self.back.acquire()
        while self.waiting:
            came, self.waiting = self.waiting, []
            lines = {worker.line for worker in came}
            if len(lines) > 1:
                self.fail(RuntimeError(f"threads of a block wait at different lines: {sorted(lines)}"), came[0].threadIdx)
            for worker in came:
                worker.turn.release()
                self.back.acquire()
        for worker in workers:
            worker.join()
        if self.error is not None:
            raise self.error

    def fail(self, error: Exception, place: Place) -> None:
        """No thread goes on; the first error is the block's."""
        self.places.clear()
        if self.error is None:
            self.error = error
            error.add_note(f"thread {tuple(place)} of block {tuple(self.place)}")


def _line(frame: FrameType | None) -> tuple[str, int]:
    """Where a kernel waits, or calls what waits."""
    while frame is not None and frame.f_code.co_filename in _waiting():
        frame = frame.f_back
    assert frame is not None
    return frame.f_code.co_filename, frame.f_lineno


@functools.cache
def _waiting() -> frozenset[str]:
    """Files whose functions wait for kernels."""
    from numba.cuda.simulator import kernelapi

    from . import fragment, warp

    return frozenset(str(module.__file__) for module in (kernelapi, fragment, warp))


def launched(kernel: Any, shape: tuple[Any, Any], arguments: Any) -> None:
    """Run a kernel, one at a time, since it remembers its own shape."""
    with _launching:
        kernel[shape](*arguments)


def simulated(function: Callable[..., None]) -> Any:
    """A kernel for the simulator."""
    from numba import cuda
    from numba.cuda.simulator import kernel, kernelapi

    kernel.BlockManager = Block
    kernelapi.FakeCUDAShared.array = _shared_array
    return cuda.jit(_quiet(function))


def _shared_array(self: Any, shape: int, dtype: Any) -> np.ndarray:
    """The array of a block for the line that asks for it, found without a look at the whole stack."""
    caller = sys._getframe(1)
    line = caller.f_code.co_filename, caller.f_lineno
    if line not in self._allocations:
        self._allocations[line] = np.empty(shape, dtype)
    found: np.ndarray = self._allocations[line]
    return found


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    """NumPy warns in each thread of the simulator; the wrapper has the globals of the function, where the simulator puts its own `cuda`."""
    errstate = np.errstate

    def run(*arguments: Any) -> None:
        with errstate(all="ignore"):
            function(*arguments)

    return types.FunctionType(run.__code__, function.__globals__, function.__name__, None, run.__closure__)
