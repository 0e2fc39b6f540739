"""The most frequent and the middle elements of a dim, and windows of signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.tensor.dtype import F64
from ...core.registry import FUNCTIONS, function, operation
from ...core.tensor import Tensor
from ..creation import arange, made
from ..operands import dim_of
from ..reduction import Extremes


@operation()
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Extremes:
    """The most frequent element along a dim, the smallest of those, and a position of it, the last one."""
    axis = dim_of(dim, input.ndim)
    array = np.moveaxis(input.detach().array(), axis, -1)
    places = np.zeros(array.shape[:-1], np.int64)
    for place in np.ndindex(*array.shape[:-1]):
        values, counts = np.unique(array[place], return_counts=True)
        places[place] = np.flatnonzero(array[place] == values[counts.argmax()])[-1]
    found = made(np.expand_dims(places, axis))
    values_, where_ = input.gather(axis, found), found
    return Extremes(values_, where_) if keepdim else Extremes(values_.squeeze(axis), where_.squeeze(axis))


@operation()
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of what is not NaN, of all elements or along a dim with its position."""
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


def _window(name: str, terms: tuple[float, ...], document: str) -> None:
    def made_window(window_length: int, periodic: bool = True, dtype: Any = None) -> Tensor:
        count = window_length if periodic else window_length - 1
        places = arange(window_length, dtype=F64) * (2 * math.pi / max(count, 1))
        total = sum((term * (places * n).cos() for n, term in enumerate(terms)), start=places * 0)
        found = total if window_length > 1 else total * 0 + 1
        return found.to(FUNCTIONS["zeros"](0, dtype=dtype).dtype)

    made_window.__name__ = name
    made_window.__doc__ = document
    function(name)(made_window)


for _row in (
    ("hann_window", (0.5, -0.5), "Hann's window; of a period without its last element if it is periodic."),
    ("hamming_window", (0.54, -0.46), "Hamming's window; of a period without its last element if it is periodic."),
    ("blackman_window", (0.42, -0.5, 0.08), "Blackman's window; of a period without its last element."),
):
    _window(*_row)
