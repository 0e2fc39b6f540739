"""Device kernels: functions of flat arrays and numbers that many threads run, compiled when they are first launched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..launch import Argument, Buffer
from ..record import dataclass
from .coded import seen_as
from .machine import SIMULATED

if TYPE_CHECKING:
    from .zip import Chain


OCCUPANCY = "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"
"""Numba's variable for remarks about small grids, which it makes unless told otherwise."""


@dataclass(frozen=True)
class Launch:
    """One call of a kernel.

    Attributes:
        arguments: buffers, which kernels see as flat arrays of the storage dtype, and numbers.
        blocks: of the grid, along each axis.
        output: what it computes, where it can take in what follows.
        takes: the launch that computes an element-wise chain of the output too, None where it cannot.
    """

    kernel: DeviceKernel
    arguments: Sequence[Argument]
    blocks: int | tuple[int, ...]
    output: Buffer | None = None
    takes: Callable[[Chain], Launch | None] | None = None


class DeviceKernel:
    """A function that the device runs.

    Attributes:
        threads: of a block, along each axis.
        title: what it computes, for listings.
        folder: where its machine code is kept.
        least: the compute capability from which it runs.
    """

    def __init__(
        self, function: Callable[..., None], threads: tuple[int, ...], title: str, folder: Path | None = None, least: tuple[int, int] = (0, 0),
    ) -> None:
        self.function = function
        self.threads = threads
        self.title = title
        self.folder = folder
        self.least = least

    def launch(self, blocks: int | tuple[int, ...], arguments: Sequence[Any], stream: Any = 0) -> None:
        """Run on device arrays and numbers; returns before it is done."""
        if SIMULATED:
            from .simulator import launched

            launched(self._compiled, (blocks, self.threads), arguments)
        else:
            self._compiled[blocks, self.threads, stream](*arguments)

    @functools.cached_property
    def _compiled(self) -> Any:
        if SIMULATED:
            from .simulator import simulated

            return simulated(self.function)
        from numba import cuda
        from numba.cuda import config

        if OCCUPANCY not in os.environ:
            config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a grid is as large as the work is
        return cuda.jit(self.function) if self.folder is None else _cached(self.function, str(self.folder))

    def ptx(self, signature: tuple[str, ...], cc: tuple[int, int]) -> str:
        """Its assembly for a compute capability; needs no device."""
        from numba import cuda
        from numba.cuda import types

        kinds = tuple(types.Array(getattr(types, name[:-1]), 1, "C") if name.endswith("*") else getattr(types, name) for name in signature)
        text, _ = cuda.compile_ptx(self.function, kinds, cc=cc)
        return str(text)

    def __repr__(self) -> str:
        return self.title


def signature(arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Types of the arguments as kernels see them: ``float32*``, ``int64``, ``float64``."""
    return tuple(
        f"{seen_as(item)[0].name}*" if isinstance(item, Buffer) else "float64" if isinstance(item, float) else "int64"
        for item in arguments
    )


def _cached(function: Callable[..., None], folder: str) -> Any:
    from numba import cuda
    from numba.cuda import config

    before = config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        return cuda.jit(cache=True)(function)
    finally:
        config.CACHE_DIR = before
