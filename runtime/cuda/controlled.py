"""Control on a device: what the `compute` of a node that decides may ask for, while tensors stay in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Node, Value
from ..op import Call
from ..plan import dtype_of_numpy
from ..record import dataclass
from ..registry import operators
from .array import ALIGNED, DeviceArray
from .memory import uploaded

if TYPE_CHECKING:
    from .program import Program


@dataclass(frozen=True)
class DeviceCall(Call):
    """As `Call`, for tensors on the device.

    Attributes:
        program: the one that the node belongs to.
    """

    program: Program

    def number(self, array: Any) -> Any:
        return super().number(array.numpy() if isinstance(array, DeviceArray) else array)

    def entries(self, array: Any, axis: int) -> Sequence[Any]:
        if not isinstance(array, DeviceArray):
            return super().entries(array, axis)
        first = self.turned(array, [axis, *(other for other in range(array.ndim) if other != axis)]) if axis else array
        shape, owner = first.shape[1:], first.owner
        size = first.nbytes // max(1, first.shape[0])
        found = [DeviceArray(first.dtype, shape, first.bytes[at * size : at * size + size], owner) for at in range(first.shape[0])]
        return [item if item.address % ALIGNED == 0 else copied(item, self.program) for item in found]

    def stacked(self, arrays: Sequence[Any], axis: int) -> Any:
        if not any(isinstance(item, DeviceArray) for item in arrays):
            return super().stacked(arrays, axis)
        items = [uploaded(item, self.program.pool) for item in arrays]
        first = items[0]
        piece = self.program.pool.piece(len(items) * first.nbytes)
        for at, item in enumerate(items):
            if item.nbytes:
                piece.bytes[at * item.nbytes : (at + 1) * item.nbytes].copy_to_device(item.bytes)
        made = DeviceArray(first.dtype, (len(items), *first.shape), piece.bytes, piece)
        place = axis % (first.ndim + 1)
        return self.turned(made, [*range(1, place + 1), 0, *range(place + 1, made.ndim)]) if place else made

    def turned(self, array: DeviceArray, axes: list[int]) -> DeviceArray:
        """Transpose."""
        (made,) = self.applied("Transpose", [array], perm=axes)
        found: DeviceArray = made
        return found

    def applied(self, operator: str, arrays: Sequence[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
        """The outputs of one operator of the standard for tensors, as it runs on the device."""
        values = [Value(f"x{at}", dtype_of_numpy(item.dtype), item.shape) for at, item in enumerate(arrays)]
        made = [Value(f"y{at}") for at in range(outputs)]
        node = Node(operators()["", operator], list(values), made, attributes)
        return self.program.sub([node], values, made, {}).run(arrays, on_device=True)


def own(found: Any, program: Program) -> Any:
    """A result that shares no memory with a run: an array that lies in its memory is copied."""
    if isinstance(found, list):
        return [own(item, program) for item in found]
    if not isinstance(found, DeviceArray) or found.owner is not None:
        return found if found is None or isinstance(found, dict | np.ndarray | DeviceArray) else np.asarray(found)
    return copied(found, program)


def copied(found: DeviceArray, program: Program) -> DeviceArray:
    """The same numbers in memory of their own."""
    piece = program.pool.piece(found.nbytes)
    if found.nbytes:
        piece.bytes.copy_to_device(found.bytes)
    return DeviceArray(found.dtype, found.shape, piece.bytes, piece)


def fetched(found: Any) -> Any:
    """A value on the host."""
    if isinstance(found, list):
        return [fetched(item) for item in found]
    return found.numpy() if isinstance(found, DeviceArray) else found
