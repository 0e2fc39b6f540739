"""Axis permutation and splitting of operands into outer and reduced axes."""

from __future__ import annotations

from collections.abc import Sequence

from ...plan.kernel_api import Buffer
from .operand import Operand, over


def permuted(buffer: Buffer, lengths: Sequence[int], order: Sequence[int]) -> Operand:
    """A buffer broadcast to a box, with the box's axes permuted."""
    found = over(buffer, lengths)
    return Operand(buffer, tuple(found.strides[axis] for axis in order))


def split(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The permutation that puts `axes` last, and the lengths of the outer and the reduced axes."""
    last = sorted({axis % len(shape) for axis in axes})
    kept = [axis for axis in range(len(shape)) if axis not in last]
    return [*kept, *last], [shape[axis] for axis in kept], [shape[axis] for axis in last]
