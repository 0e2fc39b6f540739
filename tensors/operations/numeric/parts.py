"""Copies of a tensor in which a part is replaced."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.expression import leaf, shape_error
from ...core.registry import in_place, operation
from ...core.tensor import Tensor
from ..indexing import scatter_add, where
from ..operands import broadcast, dim_of


@operation()
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy in which elements where the mask is true are those of `source`, one after the other."""
    shape = broadcast((input.shape, mask.shape), "masked_scatter")
    input, chosen, count = input.broadcast_to(shape), mask.broadcast_to(shape), source.numel()
    places = chosen.reshape(-1).long().cumsum(0) - 1
    if not count:
        return input.clone()
    taken = source.reshape(-1).index_select(0, where(chosen.reshape(-1), places, 0))
    return where(chosen, taken.reshape(input.shape), input)


@operation()
def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy with `values` at an index, a tuple of index tensors; with `accumulate` they are added."""
    index = tuple(indices)
    if accumulate:  # an element may be named twice
        numbers = Tensor(leaf(np.arange(input.numel()).reshape(input.shape)))
        places = numbers[index]
        added = values.to(input.dtype).broadcast_to(places.shape)
        return scatter_add(input.reshape(-1), 0, places.reshape(-1), added.reshape(-1)).reshape(input.shape)
    found = input.clone()
    found[index] = values
    return found


@operation()
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy with `src` in a slice of a dim."""
    found = input.clone()
    index = (*[slice(None)] * dim_of(dim, input.ndim), slice(start, end, step))
    if found[index].shape != src.shape:
        raise shape_error(f"slice_scatter: {list(src.shape)} in a slice of shape {list(found[index].shape)}")
    found[index] = src
    return found


@operation()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with `src` in one entry of a dim."""
    found = input.clone()
    place = (*[slice(None)] * dim_of(dim, input.ndim), index)
    if found[place].shape != src.shape:
        raise shape_error(f"select_scatter: {list(src.shape)} in an entry of shape {list(found[place].shape)}")
    found[place] = src
    return found


for _made in (masked_scatter, index_put):
    in_place(_made, f"{_made.__name__}_")
