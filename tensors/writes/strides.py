"""Offsets and strides: where the elements of a view lie in the memory of the tensor of which it was taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..core.expression import leaf
from ..core.registry import function, method
from ..core.tensor import Tensor
from ..operations.creation import made
from .views import Step, origin_of, reference, remember


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of elements that lie side by side in their order."""
    steps = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        steps[index] = steps[index + 1] * max(shape[index + 1], 1)
    return tuple(steps)


def _living(view: Tensor) -> tuple[Tensor, tuple[Step, ...]] | None:
    """The tensor whose memory a view lies in, and how it was taken; None if that tensor no longer exists."""
    steps = origin_of(view)
    first = next((index for index, step in enumerate(steps) if step.source() is not None), len(steps))
    if any(step.inside for step in steps) or not all(step.whole for step in steps[:first]):
        return None
    owner = steps[first].source() if first < len(steps) else view
    assert owner is not None
    return owner, steps[first:]


def _numbers(owner: Tensor, steps: Sequence[Step]) -> np.ndarray:
    """For each element of a view its number in the memory."""
    found = Tensor(leaf(np.arange(owner.numel()).reshape(owner.shape)))
    for step in steps:
        found = found if step.take is None else step.take(found)
    return found.array()


def _lies_in_order(view: Tensor) -> bool:
    return all(step.dense for step in origin_of(view))


@method()
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Elements of the memory between neighbours along each dim."""
    steps = list(row_strides(self.shape))
    living = None if _lies_in_order(self) else _living(self)
    if living is not None and self.numel():
        numbers = _numbers(*living)
        for axis, length in enumerate(self.shape):
            if length > 1:
                ends = numbers.take(0, axis), numbers.take(1, axis)
                steps[axis] = int(ends[1].reshape(-1)[0] - ends[0].reshape(-1)[0])
    return tuple(steps) if dim is None else steps[dim]


@method()
def storage_offset(self: Tensor) -> int:
    """The number of the first element in the memory; 0 of views of a tensor that no longer exists."""
    living = _living(self)
    if living is None or not living[1] or not self.numel():
        return 0
    return int(_numbers(*living).reshape(-1)[0])


def _strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    places = np.full((), offset, np.int64)
    for length, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(length) * step
    if places.size and not 0 <= places.min() <= places.max() < x.numel():
        raise UsageError("E-TENSOR-SHAPE", None, f"as_strided reads beyond {counted(x.numel(), 'element')}")
    return x.reshape(-1)[made(places)]


@function()
@method()
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements at ``storage_offset + sum(index * stride)`` of the memory; by default of the tensor's own offset.

    Raises UsageError for what lies beyond the memory, and for views of a tensor that no longer exists.
    """
    living = _living(input)
    if living is None and (storage_offset is not None or not _lies_in_order(input)):
        why = "as_strided of a view of a tensor that no longer exists"
        raise UsageError("E-TENSOR-VIEW", None, why, hint="Keep that tensor, or take clone() of the view first")
    owner, steps = (input, ()) if living is None else living
    offset = storage_offset
    if offset is None:
        offset = int(_numbers(owner, steps).reshape(-1)[0]) if steps and input.numel() else 0
    source = owner.detach() if any(step.take is None for step in steps) else owner
    found = _strided(source, size, stride, offset)
    repeats = math.prod(size) > source.numel()
    step = Step(reference(source), lambda x: _strided(x, size, stride, offset), False, False, repeats)
    return remember(found, step)
