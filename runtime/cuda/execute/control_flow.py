"""Control flow on a device: the calls that `compute` of an If, Loop or Scan makes, with tensors kept in device
memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...base.dataclass import dataclass
from ...ir.call import Call
from ...ir.graph import Node, Value
from ...ir.registry import operator as named
from ...plan.plan import dtype_of_numpy
from ..memory.device_array import DeviceArray
from ..memory.dlpack import ALIGNED
from ..memory.pool import PoolShare
from ..memory.run_memory import uploaded

Apply: TypeAlias = Callable[[Sequence[Node], Sequence[Value], Sequence[Value], Sequence[Any]], list[Any]]
"""Runs nodes on a device: given them, their inputs, their outputs and arrays, the outputs as arrays on the device."""


@dataclass(frozen=True)
class DeviceCall(Call):
    """`Call` for tensors on the device.

    Attributes:
        share: the device memory of the session.
        apply: runs other nodes on the device.
    """

    share: PoolShare
    apply: Apply

    def number(self, array: Any) -> Any:
        return super().number(array.numpy() if isinstance(array, DeviceArray) else array)

    def entries(self, array: Any, axis: int) -> Sequence[Any]:
        if not isinstance(array, DeviceArray):
            return super().entries(array, axis)
        first = (
            self.transposed(array, [axis, *(other for other in range(array.ndim) if other != axis)]) if axis else array
        )
        shape, owner = first.shape[1:], first.owner
        size = first.nbytes // max(1, first.shape[0])
        found = [
            DeviceArray(first.dtype, shape, first.bytes[at * size : at * size + size], owner)
            for at in range(first.shape[0])
        ]
        return [item if item.address % ALIGNED == 0 else copied(item, self.share) for item in found]

    def stacked(self, arrays: Sequence[Any], axis: int) -> Any:
        if not any(isinstance(item, DeviceArray) for item in arrays):
            return super().stacked(arrays, axis)
        items = [uploaded(item, self.share) for item in arrays]
        first = items[0]
        piece = self.share.piece(len(items) * first.nbytes)
        for at, item in enumerate(items):
            if item.nbytes:
                piece.bytes[at * item.nbytes : (at + 1) * item.nbytes].copy_to_device(item.bytes)
        made = DeviceArray(first.dtype, (len(items), *first.shape), piece.bytes, piece)
        place = axis % (first.ndim + 1)
        return self.transposed(made, [*range(1, place + 1), 0, *range(place + 1, made.ndim)]) if place else made

    def transposed(self, array: DeviceArray, axes: list[int]) -> DeviceArray:
        """Transpose."""
        (made,) = self.applied("Transpose", [array], perm=axes)
        found: DeviceArray = made
        return found

    def applied(self, operator: str, arrays: Sequence[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
        """The outputs of a standard operator on the device."""
        values = [Value(f"x{at}", dtype_of_numpy(item.dtype), item.shape) for at, item in enumerate(arrays)]
        made = [Value(f"y{at}") for at in range(outputs)]
        found = named(operator)
        assert found is not None
        node = Node(found, list(values), made, attributes)
        return self.apply([node], values, made, arrays)


def detach(found: Any, share: PoolShare) -> Any:
    """A result outside of the run's memory, copied if necessary."""
    if isinstance(found, list):
        return [detach(item, share) for item in found]
    if not isinstance(found, DeviceArray) or found.owner is not None:
        return found if found is None or isinstance(found, dict | np.ndarray | DeviceArray) else np.asarray(found)
    return copied(found, share)


def copied(found: DeviceArray, share: PoolShare) -> DeviceArray:
    """A copy in memory of its own."""
    piece = share.piece(found.nbytes)
    if found.nbytes:
        piece.bytes.copy_to_device(found.bytes)
    return DeviceArray(found.dtype, found.shape, piece.bytes, piece)


def to_host(found: Any) -> Any:
    """A value on the host."""
    if isinstance(found, list):
        return [to_host(item) for item in found]
    return found.numpy() if isinstance(found, DeviceArray) else found
