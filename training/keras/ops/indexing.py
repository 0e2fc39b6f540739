"""Elements by their indices, by Keras' names."""

from __future__ import annotations

import builtins
from typing import Any

from ....tensors.core.tensor import Tensor
from .operation import operation, ours, tensor_of

__all__ = [
    "diag", "diagonal", "get_item", "nonzero", "scatter", "scatter_update", "searchsorted", "segment_max",
    "segment_sum", "slice", "slice_update", "take", "take_along_axis", "trace", "tril", "triu",
]  # fmt: skip


@operation
def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements at indices along an axis, of all elements without one; negative ones count from the end."""
    tensor = tensor_of(x) if axis is not None else tensor_of(x).reshape(-1)
    dim = (axis or 0) % tensor.ndim
    given = tensor_of(indices).long()
    index = ours("where")(given < 0, given + tensor.shape[dim], given)
    found = tensor.index_select(dim, index.reshape(-1))
    return found.reshape(*tensor.shape[:dim], *given.shape, *tensor.shape[dim + 1 :])


@operation
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The element of each position along an axis whose index stands there."""
    return ours("take_along_dim")(tensor_of(x), tensor_of(indices).long(), axis)


@operation
def get_item(x: Any, key: Any) -> Tensor:
    """``x[key]``."""
    return tensor_of(x)[key]


@operation
def slice(inputs: Any, start_indices: Any, shape: Any) -> Tensor:
    """A part of a shape, whose first element is at indices; -1 is all that follow."""
    found = tensor_of(inputs)
    for axis, (first, length) in enumerate(zip(_numbers(start_indices), _numbers(shape), strict=True)):
        found = found.narrow(axis, first, found.shape[axis] - first if length == -1 else length)
    return found


@operation
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Tensor:
    """The tensor with other elements in a part, whose first one is at indices."""
    found, new = tensor_of(inputs).clone(), tensor_of(updates)
    starts = _numbers(start_indices)
    where = tuple(builtins.slice(first, first + length) for first, length in zip(starts, new.shape, strict=True))
    found[where] = new
    return found


@operation
def scatter(indices: Any, values: Any, shape: Any) -> Tensor:
    """Zeros of a shape, to which values are added at indices [..., dims]."""
    added = tensor_of(values)
    start = ours("zeros")(_numbers(shape), dtype=added.dtype)
    return start.index_put(_columns(indices), added, accumulate=True)


@operation
def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Tensor:
    """The tensor with other elements at indices [..., dims]; "add" adds to those that are there."""
    options = {None: {}, "add": {"accumulate": True}}
    return tensor_of(inputs).index_put(_columns(indices), tensor_of(updates), **options[reduction])


@operation
def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False) -> Tensor:
    """Sums of the rows of each segment."""
    rows, segments = tensor_of(data), tensor_of(segment_ids).long()
    count = int(segments.max()) + 1 if num_segments is None else num_segments
    return ours("zeros")((count, *rows.shape[1:]), dtype=rows.dtype).index_add(0, segments, rows)


@operation
def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False) -> Tensor:
    """The largest elements of the rows of each segment."""
    rows, segments = tensor_of(data), tensor_of(segment_ids).long()
    count = int(segments.max()) + 1 if num_segments is None else num_segments
    start = ours("full")((count, *rows.shape[1:]), float("-inf"), dtype=rows.dtype)
    return start.index_reduce(0, segments, rows, "amax")


@operation
def nonzero(x: Any) -> Tensor:
    """The indices of elements other than 0, a row for each axis, i32."""
    return ours("nonzero")(tensor_of(x)).T.to("i32")


@operation
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Tensor:
    """Where values stand in a sorted sequence, i32."""
    return ours("searchsorted")(tensor_of(sorted_sequence), tensor_of(values), side=side).to("i32")


@operation
def diag(x: Any, k: int = 0) -> Tensor:
    """A diagonal matrix of a vector, or the diagonal of a matrix."""
    return ours("diag")(tensor_of(x), k)


@operation
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal of two axes."""
    return ours("diagonal")(tensor_of(x), offset, axis1, axis2)


@operation
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of the diagonal."""
    return ours("diagonal")(tensor_of(x), offset, axis1, axis2).sum(-1).to(tensor_of(x).dtype)


@operation
def tril(x: Any, k: int = 0) -> Tensor:
    """Zeros above a diagonal."""
    return ours("tril")(tensor_of(x), k)


@operation
def triu(x: Any, k: int = 0) -> Tensor:
    """Zeros below a diagonal."""
    return ours("triu")(tensor_of(x), k)


def _numbers(given: Any) -> list[int]:
    return [int(each) for each in (given.tolist() if hasattr(given, "tolist") else given)]


def _columns(indices: Any) -> tuple[Tensor, ...]:
    return tuple(tensor_of(indices).long().unbind(-1))
