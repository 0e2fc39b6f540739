"""Memory that tensors share with arrays: `t.add_(1)` changes `t.numpy()`, and the array that `from_numpy` was given.

A tensor that is written to has a new expression. While somebody holds an array that was shared, its values are copied
there, and the tensor goes on with that array.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.conversion import array_of_dlpack
from ..core.expression import Expression
from ..core.lazy_tensor import LazyTensor
from ..core.realize import realize
from ..core.registry import FUNCTIONS, function, method
from ..core.trace import TRACE
from ..operations.creation import made


class Shared(NamedTuple):
    """An array that others see.

    Attributes:
        owner: what the others hold; the memory is theirs no more when it is gone.
    """

    array: np.ndarray
    owner: weakref.ref[Any]


def share(tensor: LazyTensor, array: np.ndarray, owner: Any) -> None:
    """Let the array of a tensor, and of those whose memory it has, follow their values as long as the owner lives."""
    shared = Shared(array, weakref.ref(owner))
    tensor.shared = shared
    for step in reversed(getattr(tensor, "origin", ())):
        source = step.source()
        if step.take is not None or source is None:
            return
        source.shared = shared


@method()
def write_shared(self: LazyTensor, before: Expression) -> None:
    """Copy the values to the array that others see; `before` is the expression that the tensor had."""
    array: np.ndarray = self.shared.array
    if self.shared.owner() is None:
        del self.shared
        return
    if TRACE.changes is not None:
        return
    now = self.expression
    realize([now])
    if now.data is None or now.data is array:
        return
    if before.data is array:
        before.data = np.array(array)
    np.copyto(array, now.data)
    now.data = array


_numpy = LazyTensor.numpy


@method()
def numpy(self: LazyTensor, *, force: bool = False) -> np.ndarray:
    """The elements as a NumPy array, which shares memory with the tensor.

    Raises UsageError for a tensor that requires gradients, unless `force` is true.
    """
    array = _numpy(self, force=force)
    if not array.flags.writeable:
        return array
    seen = array.view()
    share(self, array, seen)
    return seen


@function()
def from_numpy(array: np.ndarray) -> LazyTensor:
    """A tensor that shares memory with an array, which is not to be written to before results are realized."""
    if not isinstance(array, np.ndarray):
        raise UsageError("E-TENSOR-DATA", None, f"{type(array).__name__} is not a NumPy array", hint="Use tensor()")
    return _sharing(array, array)


@function()
def from_dlpack(data: Any) -> LazyTensor:
    """A tensor that shares memory with anything that speaks DLPack, of torch, NumPy, JAX and others."""
    return _sharing(array_of_dlpack(data), data)


def _sharing(array: np.ndarray, owner: Any) -> LazyTensor:
    seen = array.view()
    found = made(seen)
    if array.flags.writeable:
        share(found, seen, owner)
    return found


_as_tensor = FUNCTIONS["as_tensor"]


@function("as_tensor", "asarray")
@functools.wraps(_as_tensor)
def as_tensor(data: Any, *arguments: Any, **options: Any) -> LazyTensor:
    found: LazyTensor = _as_tensor(data, *arguments, **options)
    if found.expression.data is data and isinstance(data, np.ndarray) and not found.requires_grad:
        return _sharing(data, data)
    return found
