"""Memory of one run: buffer views into arena, weights and inputs, and copies to and from the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plan.kernel_api import Buffer
from ..element.block_quantized import kernel_view
from ..element.element import is_supported, storage_of
from .device_array import DeviceArray
from .dynamic_length import Sized
from .pool import PoolShare
from .transfer import address, flat, to_device, to_host


class Memory:
    """Buffer views of a plan in an arena; arena and weights must outlive it.

    Args:
        arena: bytes of the device.
        weights: bytes of the device for each constant, by its id.
        inputs: how many the plan has.

    Attributes:
        slots: bytes of the inputs that are on the device.
    """

    def __init__(self, arena: Any, weights: Mapping[int, Any], inputs: int, share: PoolShare) -> None:
        self.share = share
        self.arena = arena
        self.weights = weights
        self.slots: list[Any] = [None] * inputs
        self._views: dict[int, Any] = {}

    def view(self, buffer: Buffer) -> Any:
        """A buffer as a flat array of its storage dtype."""
        allocation = buffer.allocation
        kind, count = kernel_view(buffer)
        if allocation.slot is not None:
            return flat(self.slots[allocation.slot], buffer.offset, count, kind)
        found = self._views.get(id(buffer))
        if found is None:
            base, start = (
                (self.weights[id(allocation.constant)], 0)
                if allocation.constant is not None
                else (self.arena, allocation.at)
            )
            found = self._views[id(buffer)] = flat(base, start + buffer.offset, count, kind)
        return found

    def addresses(self) -> tuple[int, ...]:
        """Addresses that vary between runs: the arena, and inputs on the device."""
        return tuple(address(data) for data in (self.arena, *self.slots) if data is not None)

    def upload(self, buffer: Buffer, array: np.ndarray) -> None:
        """Copy an array to the device."""
        to_device(self.view(buffer), np.ascontiguousarray(array).reshape(-1).view(storage_of(buffer.dtype).storage))

    def fill(self, buffer: Buffer, array: DeviceArray) -> None:
        """Copy a device array into a buffer."""
        if buffer.nbytes:
            self.view(buffer).view(np.dtype(np.uint8)).copy_to_device(array.bytes)

    def array(self, location: Buffer | Sized) -> DeviceArray:
        """A value of the run, valid as long as the run; synchronizes to read a data-dependent length."""
        if isinstance(location, Buffer):
            return DeviceArray(location.dtype, location.shape, self.view(location).view(np.dtype(np.uint8)))
        shape = location.shape(int(self.download(location.count)[0]))
        most = self.array(location.buffer)
        return DeviceArray(most.dtype, shape, most.bytes[: math.prod(shape) * most.dtype.itemsize])

    def persistent_copy(self, buffer: Buffer) -> DeviceArray:
        """A copy of a buffer on the device that outlives the run."""
        made = self.share.piece(buffer.nbytes)
        if buffer.nbytes:
            made.bytes.copy_to_device(self.view(buffer).view(np.dtype(np.uint8)))
        return DeviceArray(buffer.dtype, buffer.shape, made.bytes, made)

    def uploaded(self, found: Any) -> Any:
        """A host result on the device; unchanged unless it is an array of a supported dtype."""
        return uploaded(found, self.share)

    def download(self, buffer: Buffer) -> np.ndarray:
        """Copy a buffer to the host; synchronizes."""
        return to_host(self.view(buffer), buffer.dtype, buffer.shape)


def uploaded(found: Any, share: PoolShare) -> Any:
    """A host array on the device; unchanged unless it is an array of a supported dtype."""
    if not isinstance(found, np.ndarray) or not is_supported(found.dtype):
        return found
    made = share.piece(found.nbytes)
    to_device(made.bytes, np.ascontiguousarray(found).reshape(-1).view(np.uint8))
    return DeviceArray(found.dtype, found.shape, made.bytes, made)
