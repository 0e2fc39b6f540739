"""Memory that tensors share with arrays: `t.add_(1)` changes `t.numpy()`, and the array that `from_numpy` was given.

A tensor that is written to has a new expression. While somebody holds an array that was shared, its values are copied
there, and the tensor goes on with that array.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.conversion import array_of_dlpack
from ..core.expression import Expression
from ..core.realize import realize
from ..core.registry import FUNCTIONS, function, method
from ..core.tensor import Tensor
from ..core.trace import TRACE
from ..operations.creation import made


class Shared:
    """An array that others see.

    Attributes:
        array: with the values.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._owners: list[weakref.ref[Any]] = []

    def seen_by(self, owner: Any) -> None:
        """Register an owner of the array, which ends with its object."""
        self._owners = [each for each in self._owners if each() is not None]
        self._owners.append(weakref.ref(owner))

    @property
    def is_seen(self) -> bool:
        """Whether anybody holds the array."""
        return any(each() is not None for each in self._owners)


def share(tensor: Tensor, array: np.ndarray, owner: Any) -> None:
    """Let the array of a tensor, and of those whose memory it has, follow their values as long as the owner lives."""
    tensors = [tensor]
    for step in reversed(getattr(tensor, "origin", ())):
        source = step.source()
        if step.take is not None or source is None:
            break
        tensors.append(source)
    known = [each.shared for each in tensors if hasattr(each, "shared") and each.shared.array is array]
    shared = known[0] if known else Shared(array)
    shared.seen_by(owner)
    for each in tensors:
        each.shared = shared


@method()
def write_shared(self: Tensor, before: Expression) -> None:
    """Copy the values to the array that others see; `before` is the expression that the tensor had."""
    array: np.ndarray = self.shared.array
    if not self.shared.is_seen:
        del self.shared
        return
    if TRACE.changes is not None:
        return
    now = self.expression
    realize([now])
    if now.data is None or now.data is array:
        return
    copied = np.array(array)
    for each in _same_values(before):
        if each.data is array:
            each.data = copied
    np.copyto(array, now.data)
    now.data = array


def _same_values(expression: Expression) -> list[Expression]:
    """An expression and its aliases, which results that are not computed yet may read."""
    references = getattr(expression, "aliases", ())
    return [expression, *(each for reference in references if (each := reference()) is not None)]


_numpy = Tensor.numpy


@method()
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The elements as a NumPy array, which shares memory with the tensor.

    Raises UsageError for a tensor that requires gradients, unless `force` is true.
    """
    array = _numpy(self, force=force)
    if not array.flags.writeable:
        return array
    seen = np.asarray(_Memory(array))
    share(self, array, seen)
    return seen if seen.dtype == array.dtype else seen.view(array.dtype)


class _Memory:
    """The memory of an array, as the base of another one, which slices of that keep alive: NumPy lets slices of a view
    refer to the array of which the view was taken."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.__array_interface__ = array, array.__array_interface__


@function()
def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares memory with an array.

    Results and views of the tensor that are computed already do not follow what is written to the array; those that are
    not computed yet, do.
    """
    if not isinstance(array, np.ndarray):
        raise UsageError("E-TENSOR-DATA", None, f"{type(array).__name__} is not a NumPy array", hint="Use tensor()")
    return _sharing(array, array)


@function()
def from_dlpack(data: Any) -> Tensor:
    """A tensor that shares memory with anything that speaks DLPack, of torch, NumPy, JAX and others."""
    return _sharing(array_of_dlpack(data), data)


def _sharing(array: np.ndarray, owner: Any) -> Tensor:
    seen = array.view()
    found = made(seen)
    if array.flags.writeable:
        share(found, seen, owner)
    return found


_as_tensor = FUNCTIONS["as_tensor"]


@function("as_tensor", "asarray")
@functools.wraps(_as_tensor)
def as_tensor(data: Any, *arguments: Any, **options: Any) -> Tensor:
    found: Tensor = _as_tensor(data, *arguments, **options)
    if found.expression.data is data and isinstance(data, np.ndarray) and not found.requires_grad:
        return _sharing(data, data)
    return found
