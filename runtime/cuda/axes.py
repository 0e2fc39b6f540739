"""Axes: buffers laid over a box in another order, cut into kept and folded axes."""

from __future__ import annotations

from collections.abc import Sequence

from ..launch import Buffer
from .operand import Operand, over


def permuted(buffer: Buffer, lengths: Sequence[int], order: Sequence[int]) -> Operand:
    """A buffer that broadcasts to a box, with the box's axes in another order."""
    found = over(buffer, lengths)
    return Operand(buffer, tuple(found.strides[axis] for axis in order))


def split(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The order that puts `axes` last, and the lengths of the kept and the other axes."""
    last = sorted(axis % len(shape) for axis in axes)
    kept = [axis for axis in range(len(shape)) if axis not in last]
    return [*kept, *last], [shape[axis] for axis in kept], [shape[axis] for axis in last]
