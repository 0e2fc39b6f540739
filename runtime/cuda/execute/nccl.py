"""NCCL communicator (package nccl4py): collective operations between ranks with a GPU each."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError
from ...plan.kernel_api import Buffer
from ..device.device import INSTALL, cuda_support
from ..kernel.kernel import Launch
from ..memory.device_array import DeviceArray
from ..memory.transfer import to_host


def identity(size: int) -> bytes | None:
    """The NCCL unique id, created by rank 0; None with fewer GPUs than ranks. Raises UnsupportedError without
    nccl4py."""
    if len(cuda_support().devices) < size:
        return None
    made: bytes = bytes(_core().get_unique_id())
    return made


def _core() -> Any:
    try:
        return importlib.import_module("nccl.core")
    except ImportError as error:
        raise UnsupportedError(
            "E-RANK-PACKAGE", None, "tensor parallelism on several GPUs needs the package nccl4py", hint=INSTALL
        ) from error


class Nccl:
    """A communicator of `runtime.ranks.communicator` on device `number`. All ranks must create theirs at the same
    time."""

    def __init__(self, rank: int, size: int, identity: bytes, number: int) -> None:
        from numba import cuda

        self.rank = rank
        self.size = size
        self.number = number
        self._core = _core()
        cuda.select_device(number)
        self._communicator = self._core.Communicator.init(size, rank, self._core.UniqueId.from_bytes(identity))

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of host arrays, through the GPUs."""
        there = _uploaded(array)
        self.sum(there, there, 0)
        return to_host(there.bytes, array.dtype, array.shape)

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        """All ranks' host arrays, through the GPUs."""
        found = np.empty((self.size, *array.shape), array.dtype)
        whole = _uploaded(found)
        self.gather(_uploaded(array), whole, 0)
        return to_host(whole.bytes, found.dtype, found.shape)

    def sum(self, source: DeviceArray, target: DeviceArray, stream: int) -> None:
        """Write the sum of all ranks' `source` into `target`, on a stream."""
        self._communicator.allreduce(source, target, self._core.SUM, stream=stream)

    def gather(self, source: DeviceArray, target: DeviceArray, stream: int) -> None:
        """Concatenate all ranks' `source` in `target`, on a stream."""
        self._communicator.allgather(source, target, stream=stream)

    def launch(self, what: str, source: Buffer, target: Buffer) -> Launch:
        """`sum` or `gather` as a step of a plan."""
        work = {"sum": self.sum, "gather": self.gather}[what]
        together = _Together(f"{what} over ranks", work, source.dtype)
        return Launch(together, [source, target], 1)  # type: ignore[arg-type]


def _uploaded(array: np.ndarray) -> DeviceArray:
    from numba import cuda

    return DeviceArray(array.dtype, array.shape, cuda.to_device(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))


class _Together:
    """A collective operation with the interface of a kernel."""

    def __init__(self, title: str, work: Callable[[DeviceArray, DeviceArray, int], None], dtype: np.dtype[Any]) -> None:
        self.title, self.work, self.dtype = title, work, dtype

    def launch(self, blocks: int | tuple[int, ...], arguments: Sequence[Any], stream: Any = 0) -> None:
        """Run the collective on the first argument, into the second."""
        source, target = (self._array(item) for item in arguments)
        self.work(source, target, int(stream))

    def _array(self, flat: Any) -> DeviceArray:
        data = flat.view(np.dtype(np.uint8))
        return DeviceArray(self.dtype, (math.prod(data.shape) // self.dtype.itemsize,), data)
