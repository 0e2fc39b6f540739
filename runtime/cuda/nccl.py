"""Ranks that have a card each, connected by NCCL (package nccl4py): sums go from card to card."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..launch import Buffer
from .array import DeviceArray
from .kernel import Launch
from .machine import INSTALL, state
from .memory import fetched


def identity(size: int) -> bytes | None:
    """What the ranks find each other by, made by rank 0; None where there are fewer cards than ranks. UnsupportedError without nccl4py."""
    if len(state().devices) < size:
        return None
    made: bytes = bytes(_core().get_unique_id())
    return made


def _core() -> Any:
    try:
        return importlib.import_module("nccl.core")
    except ImportError as error:
        raise UnsupportedError("E-RANK-PACKAGE", None, "several cards need the package nccl4py", hint=INSTALL) from error


class Nccl:
    """A communicator of `runtime.ranks` on the device `number`. All ranks make theirs at the same time."""

    def __init__(self, rank: int, size: int, identity: bytes, number: int) -> None:
        from numba import cuda

        self.rank = rank
        self.size = size
        self.number = number
        self._core = _core()
        cuda.select_device(number)
        self._communicator = self._core.Communicator.init(size, rank, self._core.UniqueId.from_bytes(identity))

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of arrays on the host, by way of the cards."""
        from numba import cuda

        held = cuda.to_device(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        there = DeviceArray(array.dtype, array.shape, held)
        self.sum(there, there, 0)
        return fetched(held, array.dtype, array.shape)

    def sum(self, source: DeviceArray, target: DeviceArray, stream: int) -> None:
        """Write the sum of all ranks' `source` into `target`, in order on a stream."""
        self._communicator.allreduce(source, target, self._core.SUM, stream=stream)

    def launch(self, source: Buffer, target: Buffer) -> Launch:
        """The same as a step of a plan."""
        return Launch(_Sum(self, source.dtype), [source, target], 1)  # type: ignore[arg-type]


class _Sum:
    """What a plan launches like a kernel."""

    title = "sum over ranks"

    def __init__(self, ranks: Nccl, dtype: np.dtype[Any]) -> None:
        self.ranks = ranks
        self.dtype = dtype

    def launch(self, blocks: int | tuple[int, ...], arguments: Sequence[Any], stream: Any = 0) -> None:
        """Add up the first argument into the second."""
        source, target = (self._array(item) for item in arguments)
        self.ranks.sum(source, target, 0 if isinstance(stream, int) else int(stream.handle.value or 0))

    def _array(self, flat: Any) -> DeviceArray:
        data = flat.view(np.dtype(np.uint8))
        return DeviceArray(self.dtype, (math.prod(data.shape) // self.dtype.itemsize,), data)
