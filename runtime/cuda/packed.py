"""Packed arrays on the device: elements of fewer than 8 bits as files have them, each taken out of its byte by the kernel that loads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..blocks import Packed, numbers
from ..dtype import of_numpy
from ..launch import Buffer, Room
from ..record import dataclass
from .element import stored


@dataclass(frozen=True, eq=False)
class PackedBuffer(Buffer):
    """An array of which a byte holds several elements, the first one in the lowest bits.

    Attributes:
        bits: of an element.
        first: elements before the first one in its byte.
    """

    bits: int = field(kw_only=True)
    first: int = field(default=0, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements lie in."""
        return -(-(self.first + self.count) * self.bits // 8)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> PackedBuffer:
        """The same memory from element `start` on; another dtype has as many bits."""
        byte, first = divmod(self.first + start, 8 // self.bits)
        return PackedBuffer(dtype or self.dtype, tuple(shape), self.room, self.offset + byte, bits=self.bits, first=first)

    def host(self) -> Packed | np.ndarray:
        """A constant as the host has it."""
        assert self.room.constant is not None
        data = numbers(self.room.constant).reshape(-1)[self.offset : self.offset + self.nbytes]
        whole = Packed(of_numpy(self.dtype), (self.first + self.count,), data)
        return whole.numpy()[self.first :].reshape(self.shape) if self.first else Packed(whole.dtype, self.shape, data)


def packed_buffer(array: Packed) -> PackedBuffer:
    """A constant that is packed."""
    return PackedBuffer(array.dtype.as_numpy(), array.shape, Room(array.nbytes, constant=array.data), bits=array.dtype.bits)


def element(buffer: Buffer, array: str, place: str) -> str:
    """Text of the number at a place of an array that is not of blocks."""
    found = f"{array}[{place}]"
    if isinstance(buffer, PackedBuffer):
        at = f"({place}) + {buffer.first}" if buffer.first else place
        found = f"field({array}, 0, {at}, {buffer.bits})"
    return stored(buffer.dtype).load.format(found)
