"""Arrays on a device: dtype, shape and device bytes, which other libraries take without a copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .element import stored
from .machine import SIMULATED, on

if TYPE_CHECKING:
    from ..launch import Buffer
    from .memory import Memory


ALIGNED = 16
"""Bytes that kernels read at a time; arrays begin at a multiple of them."""


class DeviceArray:
    """A contiguous array in device memory.

    It speaks DLPack and ``__cuda_array_interface__``; under the simulator, whose memory is the host's, DLPack says so.

    Attributes:
        bytes: the memory, as numba-cuda's array of uint8.
        owner: what the memory lasts as long as, where `bytes` does not keep it.
    """

    on_device = True

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...], data: Any, owner: Any = None) -> None:
        self.dtype = dtype
        self.shape = shape
        self.bytes = data
        self.owner = owner

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @staticmethod
    def of(buffer: Buffer, memory: Memory) -> DeviceArray:
        """A buffer of a run, which lasts as long as the run."""
        return DeviceArray(buffer.dtype, buffer.shape, memory.view(buffer).view(np.dtype(np.uint8)))

    @staticmethod
    def taken(other: Any) -> DeviceArray:
        """Another library's array: by DLPack, which says on which device it is and waits for who writes it, else by ``__cuda_array_interface__``.

        There is no copy where it is contiguous.
        """
        from .exchange import by_dlpack, by_interface

        return by_dlpack(other) if hasattr(other, "__dlpack__") else by_interface(other)

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(self.bytes._ary.ctypes.data) if SIMULATED else int(self.bytes.__cuda_array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "strides": None, "version": 3, "stream": 1}

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        from .exchange import capsule

        return capsule(self.copy() if copy else self, stream, dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        from .exchange import place

        return place(self)

    def copy(self) -> DeviceArray:
        """Another array with the same numbers."""
        from numba import cuda

        with on(self.__dlpack_device__()[1]):
            made = cuda.device_array(self.bytes.size, np.uint8)
        if self.bytes.size:
            made.copy_to_device(self.bytes)
        return DeviceArray(self.dtype, self.shape, made)

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        from .memory import fetched

        return fetched(self.bytes.view(stored(self.dtype).storage), self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, {list(self.shape)}{', simulated' if SIMULATED else ''})"
