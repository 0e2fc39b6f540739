"""Numba's simulator as kernels need it: threads take turns often, do not warn, and share each shared array from its first use on.

The simulator makes a shared array when a thread finds none for its line; two threads that look at the same moment would get one each.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_launching = threading.Lock()
_allocating = threading.Lock()
SWITCH_SECONDS = 1e-4


@contextlib.contextmanager
def simulating() -> Iterator[None]:
    """One launch at a time. Its threads wait for each other all the time; Python lets them take turns more often."""
    with _launching:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            yield
        finally:
            sys.setswitchinterval(before)


def simulated(function: Callable[..., None]) -> Any:
    """A kernel for the simulator."""
    from numba import cuda
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    FakeCUDAShared.array = _shared_array
    return cuda.jit(_quiet(function))


def _shared_array(self: Any, shape: int, dtype: Any) -> np.ndarray:
    """The array of a block for the line that asks for it."""
    caller = sys._getframe(1)
    line = caller.f_code.co_filename, caller.f_lineno
    with _allocating:
        if line not in self._allocations:
            self._allocations[line] = np.empty(shape, dtype)
        return self._allocations[line]


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    """NumPy warns in each thread of the simulator; the wrapper has the globals of the function, where the simulator puts its own `cuda`."""
    errstate = np.errstate

    def run(*arguments: Any) -> None:
        with errstate(all="ignore"):
            function(*arguments)

    return types.FunctionType(run.__code__, function.__globals__, function.__name__, None, run.__closure__)
