"""Native ScatterND and ScatterElements that add, as the gradients of an embedding and of MaxPool do. Whatever is added
to one position is added by one part, in order."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from .gather_kernel import INDICES, base_of, index_at, plan_scatter_elements, plan_scatter_nd
from .scatter import scatter_elements, scatter_nd

MIN_COLUMNS = 64
"""Columns of a part."""


@range_kernel
def rows_added(
    source: Address,
    indices: Address,
    target: Address,
    count: int,
    height: int,
    columns: int,
    nbytes: int,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """Add `count` rows of the source to rows of the target, which has `height`, by indices of `nbytes` bytes."""
    source, target = f32(source), f32(target)
    first, last = share(columns, part, parts)
    for row in range(count):
        place = index_at(indices, nbytes, row, height, bailout) * columns
        for column in range(first, last):
            target[place + column] += source[row * columns + column]


@range_kernel
def elements_added(
    source: Address,
    indices: Address,
    target: Address,
    outer: int,
    count: int,
    inner: int,
    height: int,
    nbytes: int,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """Add elements [outer, count, inner], by their indices, to those of the target [outer, height, inner]. Each part
    adds those in its range of positions."""
    source, target = f32(source), f32(target)
    low, high = share(outer * height * inner, part, parts)
    for matrix in range(outer):
        for row in range(count):
            for column in range(inner):
                at = (matrix * count + row) * inner + column
                place = (matrix * height + index_at(indices, nbytes, at, height, bailout)) * inner + column
                if low <= place < high:
                    target[place] += source[at]


@native(scatter_elements)
def plan_scatter_elements_add(step: Step) -> Planned:
    """Plan f32 sums; another kernel scatters without reduction."""
    if step.attributes["reduction"] != "add":
        return plan_scatter_elements(step)
    x, indices, updates = step.inputs
    if x is None or indices is None or updates is None or x.dtype != np.float32 or indices.dtype.name not in INDICES:
        return None
    if not x.shape or indices.shape != updates.shape:
        return None
    axis = step.attributes["axis"] % len(x.shape)
    if updates.shape[:axis] != x.shape[:axis] or updates.shape[axis + 1 :] != x.shape[axis + 1 :]:
        return None
    y, launches = base_of(step, x)
    added = Launch(
        elements_added,
        step.parts(2, 2.0 * updates.count),
        source=updates,
        indices=indices,
        target=y,
        outer=math.prod(x.shape[:axis]),
        count=updates.shape[axis],
        inner=math.prod(x.shape[axis + 1 :]),
        height=x.shape[axis],
        nbytes=indices.dtype.itemsize,
        bailout=step.bailout,
    )
    return [*launches, added]


@native(scatter_nd)
def plan_scatter_nd_add(step: Step) -> Planned:
    """Plan f32 sums by one index each; another kernel scatters without reduction."""
    if step.attributes["reduction"] != "add":
        return plan_scatter_nd(step)
    x, indices, updates = step.inputs
    if x is None or indices is None or updates is None or x.dtype != np.float32 or indices.dtype.name not in INDICES:
        return None
    if not x.shape or not indices.shape or indices.shape[-1] != 1:
        return None
    if updates.shape != (*indices.shape[:-1], *x.shape[1:]):
        return None
    y, launches = base_of(step, x)
    columns = math.prod(x.shape[1:])
    added = Launch(
        rows_added,
        step.parts(max(1, columns // MIN_COLUMNS), updates.count),
        source=updates,
        indices=indices,
        target=y,
        count=indices.count,
        height=x.shape[0],
        columns=columns,
        nbytes=indices.dtype.itemsize,
        bailout=step.bailout,
    )
    return [*launches, added]
