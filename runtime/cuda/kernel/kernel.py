"""Device kernels: CUDA functions of flat arrays and scalars, compiled at first launch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...base.dataclass import dataclass
from ...plan.kernel_api import Argument, BaseLaunch, Buffer, Chain
from ..device.device import SIMULATED
from ..element.block_quantized import kernel_view

OCCUPANCY = "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"
"""Environment variable of Numba's low-occupancy warnings, which are on by default."""


@dataclass(frozen=True)
class Launch(BaseLaunch):
    """One launch of a device kernel.

    Attributes:
        arguments: buffers, which kernels see as flat arrays of the storage dtype, and numbers.
        blocks: of the grid, along each axis.
    """

    kernel: DeviceKernel
    arguments: Sequence[Argument]
    blocks: int | tuple[int, ...]
    output: Buffer | None = None
    takes: Callable[[Chain, Buffer], Launch | None] | None = None


class DeviceKernel:
    """A CUDA kernel.

    Attributes:
        threads: of a block, along each axis.
        title: what it computes, for listings.
        folder: where its machine code is kept.
        least: the compute capability from which it runs.
    """

    def __init__(
        self,
        function: Callable[..., None],
        threads: tuple[int, ...],
        title: str,
        folder: Path | None = None,
        least: tuple[int, int] = (0, 0),
    ) -> None:
        self.function = function
        self.threads = threads
        self.title = title
        self.folder = folder
        self.least = least

    def launch(self, blocks: int | tuple[int, ...], arguments: Sequence[Any], stream: Any = 0) -> None:
        """Launch on device arrays and scalars, asynchronously."""
        if SIMULATED:
            from ..device.simulator import launched

            launched(self._compiled, (blocks, self.threads), arguments)
        else:
            self._compiled[blocks, self.threads, stream](*arguments)

    @functools.cached_property
    def _compiled(self) -> Any:
        if SIMULATED:
            from ..device.simulator import simulated

            return simulated(self.function)
        from numba import cuda
        from numba.cuda import config

        if OCCUPANCY not in os.environ:
            config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # a grid is as large as the work is
        return cuda.jit(self.function) if self.folder is None else _cached(self.function, str(self.folder))

    def ptx(self, signature: tuple[str, ...], cc: tuple[int, int]) -> str:
        """PTX of the kernel for a compute capability; needs no device."""
        from numba import cuda
        from numba.cuda import types

        kinds = tuple(
            types.Array(getattr(types, name[:-1]), 1, "C") if name.endswith("*") else getattr(types, name)
            for name in signature
        )
        text, _ = cuda.compile_ptx(self.function, kinds, cc=cc)
        return str(text)

    def __repr__(self) -> str:
        return self.title


def signature(arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Types of the arguments as kernels see them: ``float32*``, ``int64``, ``float64``."""
    return tuple(
        f"{kernel_view(item)[0].name}*"
        if isinstance(item, Buffer)
        else "float64"
        if isinstance(item, float)
        else "int64"
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
