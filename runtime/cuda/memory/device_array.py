"""Arrays in device memory, exchanged with other libraries without a copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..device.device import SIMULATED, use_device
from ..element.element import storage_of
from .dlpack import by_dlpack, by_interface, capsule, place
from .transfer import to_host


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
    def wrap(other: Any) -> DeviceArray:
        """Wrap another library's array: by DLPack, which names the device and synchronizes, else by
        ``__cuda_array_interface__``.

        Contiguous arrays are not copied.
        """
        found = by_dlpack(other) if hasattr(other, "__dlpack__") else by_interface(other)
        return DeviceArray(found.dtype, found.shape, found.data, found.owner)

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return int(self.bytes._ary.ctypes.data) if SIMULATED else int(self.bytes.__cuda_array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": 1,
        }

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        return capsule(self.copy() if copy else self, stream, dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return place(self)

    def copy(self) -> DeviceArray:
        """A copy in memory of its own."""
        from numba import cuda

        with use_device(self.__dlpack_device__()[1]):
            made = cuda.device_array(self.bytes.size, np.uint8)
        if self.bytes.size:
            made.copy_to_device(self.bytes)
        return DeviceArray(self.dtype, self.shape, made)

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        return to_host(self.bytes.view(storage_of(self.dtype).storage), self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, {list(self.shape)}{', simulated' if SIMULATED else ''})"
