"""Packed sub-byte buffers on the device, unpacked by the kernel that loads an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...plan.kernel_api import Allocation, Buffer
from ...tensor.dtype import of_numpy
from ...tensor.weight_array import Packed, as_array
from .element import storage_of


@dataclass(frozen=True, eq=False)
class PackedBuffer(Buffer):
    """An array with several elements per byte, the first in the lowest bits.

    Attributes:
        bits: of an element.
        first: elements before the first one in its byte.
    """

    bits: int = field(kw_only=True)
    first: int = field(default=0, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements span."""
        return -(-(self.first + self.count) * self.bits // 8)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> PackedBuffer:
        """The same memory from element `start` on; another dtype must have the same number of bits."""
        byte, first = divmod(self.first + start, 8 // self.bits)
        return PackedBuffer(
            dtype or self.dtype, tuple(shape), self.allocation, self.offset + byte, bits=self.bits, first=first
        )

    def host(self) -> Packed | np.ndarray:
        """A constant as a host array."""
        assert self.allocation.constant is not None
        data = as_array(self.allocation.constant).reshape(-1)[self.offset : self.offset + self.nbytes]
        whole = Packed(of_numpy(self.dtype), (self.first + self.count,), data)
        return whole.numpy()[self.first :].reshape(self.shape) if self.first else Packed(whole.dtype, self.shape, data)


def packed_buffer(array: Packed) -> PackedBuffer:
    """A packed constant as a buffer."""
    return PackedBuffer(
        array.dtype.as_numpy(), array.shape, Allocation(array.nbytes, constant=array.data), bits=array.dtype.bits
    )


def element(buffer: Buffer, array: str, place: str) -> str:
    """Code that loads an element of a buffer that is not block-quantized."""
    found = f"{array}[{place}]"
    if isinstance(buffer, PackedBuffer):
        at = f"({place}) + {buffer.first}" if buffer.first else place
        found = f"field({array}, 0, {at}, {buffer.bits})"
    return storage_of(buffer.dtype).load.format(found)
