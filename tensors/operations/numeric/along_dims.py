"""The most frequent and the middle elements of a dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.registry import operation
from ...core.tensor import Tensor
from ..creation import made
from ..operands import dim_of
from ..reduction import Extremes


@operation()
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Extremes:
    """The most frequent element along a dim, the smallest of those, and a position of it, the last one."""
    axis = dim_of(dim, input.ndim)
    if not input.ndim:
        return Extremes(input, made(np.zeros((), np.int64)))
    array = np.moveaxis(input.detach().array(), axis, -1)
    places = np.zeros(array.shape[:-1], np.int64)
    for index in np.ndindex(*array.shape[:-1]):
        values, counts = np.unique(array[index], return_counts=True)
        places[index] = np.flatnonzero(array[index] == values[counts.argmax()])[-1]
    found = made(np.expand_dims(places, axis))
    values_, where_ = input.gather(axis, found), found
    return Extremes(values_, where_) if keepdim else Extremes(values_.squeeze(axis), where_.squeeze(axis))


@operation()
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN, of all elements or along a dim with its position."""
    if not input.ndim:
        return input if dim is None else Extremes(input, made(np.zeros((), np.int64)))
    flat = input.reshape(-1) if dim is None else input
    axis = 0 if dim is None else dim_of(dim, input.ndim)
    array = flat.detach().array()
    order = np.argsort(array, axis, kind="stable")
    counts = np.maximum((~np.isnan(array)).sum(axis, keepdims=True) - 1, 0) // 2
    places = made(np.take_along_axis(order, counts, axis).astype(np.int64))
    found = flat.gather(axis, places)
    if dim is None:
        return found.reshape(())
    return Extremes(found, places) if keepdim else Extremes(found.squeeze(axis), places.squeeze(axis))
