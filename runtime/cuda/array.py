"""Arrays on a device: dtype, shape and device bytes, which other libraries take without a copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .element import stored
from .machine import SIMULATED

if TYPE_CHECKING:
    from ..launch import Buffer
    from .memory import Memory


class DeviceArray:
    """A contiguous array in device memory.

    Attributes:
        bytes: the memory, as numba-cuda's array of uint8.
    """

    on_device = True

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...], data: Any) -> None:
        self.dtype = dtype
        self.shape = shape
        self.bytes = data

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @staticmethod
    def of(buffer: Buffer, memory: Memory) -> DeviceArray:
        """A buffer of a run, which lasts as long as the run."""
        return DeviceArray(buffer.dtype, buffer.shape, memory.view(buffer).view(np.dtype(np.uint8)))

    @staticmethod
    def taken(other: Any) -> DeviceArray:
        """Another library's contiguous array, through ``__cuda_array_interface__``; no copy where it is contiguous."""
        from numba import cuda

        found = cuda.as_cuda_array(other)
        if not found.is_c_contiguous():
            found = cuda.to_device(found.copy_to_host().copy(order="C"))
        flat = found.reshape(math.prod(found.shape))
        return DeviceArray(np.dtype(found.dtype), tuple(found.shape), flat.view(np.dtype(np.uint8)))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = dict(self.bytes.__cuda_array_interface__)
        return {**interface, "shape": self.shape, "typestr": self.dtype.str, "strides": None}

    def copy(self) -> DeviceArray:
        """Another array with the same numbers."""
        from numba import cuda

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
