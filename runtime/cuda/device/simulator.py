"""Deterministic block execution for Numba's CUDA simulator: threads run one at a time, from barrier to barrier.

So a run repeats exactly, and no thread polls. Every second block starts with its last thread: a missing barrier
shows in one of the orders. Threads that wait at different barriers are an error, as a GPU would deadlock. NumPy
warnings are off.
"""

from __future__ import annotations

import itertools
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from ...base.process_cache import PROCESS, process_cache

_launching = threading.Lock()
_blocks = itertools.count()


class Place(NamedTuple):
    """Index of a thread in its block, or of a block in its grid."""

    x: int
    y: int
    z: int


class Worker(threading.Thread):
    """Runs threads of a block, one after another; has the attributes by which the simulator identifies a thread."""

    def __init__(self, block: Block) -> None:
        super().__init__(daemon=True)
        self._manager = block
        self.turn = threading.Semaphore(0)

    def run(self) -> None:
        """Run threads that have not started, until none are left."""
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
        """Barrier: wait until all running threads of the block arrive."""
        block = self._manager
        self.line = _line(sys._getframe(1))
        block.arrived.append(self)
        block.back.release()
        self.turn.acquire()
        if block.error is not None:
            raise InterruptedError


class Block:
    """Runs a block; replaces the simulator's BlockManager, which polls its threads."""

    def __init__(
        self, function: Callable[..., None], grid: tuple[int, int, int], shape: tuple[int, int, int], debug: bool
    ) -> None:
        self.function = function
        self.shape = Place(*shape)
        self.back = threading.Semaphore(0)
        self.arrived: list[Worker] = []
        self.error: Exception | None = None

    def run(self, place: tuple[int, int, int], *arguments: Any) -> None:
        """Run the block at a grid index; raises the first error of its threads."""
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
        while self.arrived:
            came, self.arrived = self.arrived, []
            lines = {worker.line for worker in came}
            if len(lines) > 1:
                self.fail(
                    RuntimeError(f"threads of a block wait at different lines: {sorted(lines)}"), came[0].threadIdx
                )
            for worker in came:
                worker.turn.release()
                self.back.acquire()
        for worker in workers:
            worker.join()
        if self.error is not None:
            raise self.error

    def fail(self, error: Exception, place: Place) -> None:
        """Stop all threads; the first error is raised."""
        self.places.clear()
        if self.error is None:
            self.error = error
            error.add_note(f"thread {tuple(place)} of block {tuple(self.place)}")


def _line(frame: FrameType | None) -> tuple[str, int]:
    """Source line of the barrier that a kernel waits at."""
    while frame is not None and frame.f_code.co_filename in _barrier_files():
        frame = frame.f_back
    assert frame is not None
    return frame.f_code.co_filename, frame.f_lineno


@process_cache(kept=PROCESS)
def _barrier_files() -> frozenset[str]:
    """Source files of functions that wait inside kernels."""
    from numba.cuda.simulator import kernelapi

    from . import mma, mma_fragment

    return frozenset(str(module.__file__) for module in (kernelapi, mma_fragment, mma))


def launched(kernel: Any, shape: tuple[Any, Any], arguments: Any) -> None:
    """Run a kernel; one at a time, because it stores its launch shape."""
    with _launching:
        kernel[shape](*arguments)


def simulated(function: Callable[..., None]) -> Any:
    """A simulated kernel."""
    from numba import cuda
    from numba.cuda.simulator import kernel, kernelapi

    kernel.BlockManager = Block
    kernelapi.FakeCUDAShared.array = _shared_array
    return cuda.jit(_quiet(function))


def _shared_array(self: Any, shape: int, dtype: Any) -> np.ndarray:
    """The block's shared array for a source line, found without walking the entire stack."""
    caller = sys._getframe(1)
    line = caller.f_code.co_filename, caller.f_lineno
    if line not in self._allocations:
        self._allocations[line] = np.empty(shape, dtype)
    found: np.ndarray = self._allocations[line]
    return found


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a kernel to silence NumPy warnings in each simulated thread; the wrapper has the function's globals,
    where the simulator puts its `cuda`."""
    errstate = np.errstate

    def run(*arguments: Any) -> None:
        with errstate(all="ignore"):
            function(*arguments)

    return types.FunctionType(run.__code__, function.__globals__, function.__name__, None, run.__closure__)
