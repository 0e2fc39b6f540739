"""Native reductions over any axes: along contiguous rows, or by combining whole lines."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.element import Element, element
from ...runtime.simd.reduce import add, along_element, identity, maximum, minimum, multiply
from ...runtime.simd.vector import stack_array
from . import reduce

WIDTH = 1024
"""Columns that are combined at a time."""
TALL = 64
"""Lines after which columns are put together in the wider type."""


@inlined
def _size_of(value: Any, shift: Any) -> Any:
    return abs(value)


@inlined
def _square(value: Any, shift: Any) -> Any:
    return value * value


@functools.cache
def _power(exp: Any) -> Any:
    @inlined
    def power(value: Any, shift: Any) -> Any:
        return exp(value - shift)

    return power


@inlined
def _whole(total: Any, size: Any, shift: Any) -> Any:
    return total


@inlined
def _mean(total: Any, size: Any, shift: Any) -> Any:
    return total / size


@inlined
def _root(total: Any, size: Any, shift: Any) -> Any:
    return math.sqrt(total)


@inlined
def _logarithm(total: Any, size: Any, shift: Any) -> Any:
    return math.log(total)


@inlined
def _shifted_logarithm(total: Any, size: Any, shift: Any) -> Any:
    return math.log(total) + shift


@dataclass(frozen=True)
class Reduction:
    """What a reduction does with its numbers.

    Attributes:
        start: what combining leaves as it is; prepared, combine, finish: on the way in, between two, and on the way
            out.
        shifted: whether it looks at the elements relative to the largest one.
    """

    start: Callable[[np.dtype[Any]], Any]
    prepared: Any
    combine: Any
    finish: Any
    shifted: bool = False


def _least(dtype: np.dtype[Any]) -> Any:
    return -math.inf if dtype.kind not in "iu" else int(np.iinfo(dtype).min)


def _most(dtype: np.dtype[Any]) -> Any:
    return math.inf if dtype.kind not in "iu" else int(np.iinfo(dtype).max)


ZERO: Callable[[Any], Any] = lambda dtype: 0  # noqa: E731
MAXIMUM = Reduction(_least, identity, maximum, _whole)
REDUCTIONS = {
    reduce.reduce_sum: Reduction(ZERO, identity, add, _whole),
    reduce.reduce_mean: Reduction(ZERO, identity, add, _mean),
    reduce.reduce_prod: Reduction(lambda dtype: 1, identity, multiply, _whole),
    reduce.reduce_max: MAXIMUM,
    reduce.reduce_min: Reduction(_most, identity, minimum, _whole),
    reduce.reduce_l1: Reduction(ZERO, _size_of, add, _whole),
    reduce.reduce_l2: Reduction(ZERO, _square, add, _root),
    reduce.reduce_sum_square: Reduction(ZERO, _square, add, _whole),
    reduce.reduce_log_sum: Reduction(ZERO, identity, add, _logarithm),
    reduce.reduce_log_sum_exp: Reduction(ZERO, _power, add, _shifted_logarithm, shifted=True),
}


@inlined
def place(axes: Any, count: Any, index: Any) -> Any:
    """Offset of an index among axes: `count` lengths, the last axis first, then as many strides."""
    found = 0
    for axis in range(count - 1):
        length = axes[axis]
        rest = index // length
        found += (index - rest * length) * axes[count + axis]
        index = rest
    return found + index * axes[2 * count - 1] if count > 0 else found


@inlined
def shift_of(shifts: Any, pointer: Any, none: Any, index: Any) -> Any:
    """What elements are relative to: where there is a largest one that is finite, that."""
    if shifts == 0:
        return none
    found = pointer(shifts)[index]
    return found if abs(found) < np.inf else none


def _along_rows(kind: Element, reduction: Reduction, start: Any) -> RangeKernel:
    pointer, compute_pointer, narrow, compute_type = kind.pointer, kind.compute_pointer, kind.narrow, kind.compute_type
    finish, combine, total, shifted = reduction.finish, reduction.combine, kind.sum_type, reduction.shifted
    prepared = (
        reduction.prepared(kind.math.exp if kind.compute_type is np.float32 else math.exp)
        if shifted
        else reduction.prepared
    )
    row = along_element(kind, start, prepared, combine)

    @range_kernel
    def reduced_rows(
        x: Address,
        y: Address,
        shifts: Address,
        outputs: int,
        lines: int,
        count: int,
        size: int,
        kept: int,
        kept_axes: Words,
        reduced: int,
        line_axes: Words,
        part: int,
        parts: int,
    ) -> None:
        """Outputs of `size` elements each, in lines of `count`; axes kept and reduced have lengths (last first), then
        strides."""
        x, y = pointer(x), pointer(y)
        lanes = stack_array(compute_type, 4)
        first, last = share(outputs, part, parts)
        for output in range(first, last):
            base = place(kept_axes, kept, output)
            shift = shift_of(shifts, compute_pointer, compute_type(0), output) if shifted else compute_type(0)
            found = total(start)
            for line in range(lines):
                at = base + place(line_axes, reduced, line)
                found = total(combine(found, row(x, at, count, shift, lanes)))
            y[output] = narrow(compute_type(finish(found, size, shift)))

    return reduced_rows


def _along_columns(kind: Element, reduction: Reduction, start: Any) -> RangeKernel:
    pointer, compute_pointer, widen, narrow, compute_type = (
        kind.pointer,
        kind.compute_pointer,
        kind.widen,
        kind.narrow,
        kind.compute_type,
    )
    finish, combine, total, shifted = reduction.finish, reduction.combine, kind.sum_type, reduction.shifted
    prepared = (
        reduction.prepared(kind.math.exp if kind.compute_type is np.float32 else math.exp)
        if shifted
        else reduction.prepared
    )

    @range_kernel
    def reduced_columns(
        x: Address,
        y: Address,
        shifts: Address,
        outputs: int,
        lines: int,
        count: int,
        size: int,
        kept: int,
        kept_axes: Words,
        reduced: int,
        line_axes: Words,
        part: int,
        parts: int,
    ) -> None:
        """As above, where a line has an element of `count` outputs that lie together."""
        x, y = pointer(x), pointer(y)
        blocks = (count + WIDTH - 1) // WIDTH
        sums, totals, starts = stack_array(compute_type, 64), stack_array(total, 64), stack_array(compute_type, 64)
        first, last = share(outputs // count * blocks, part, parts)
        for unit in range(first, last):
            row, column = unit // blocks, unit % blocks * WIDTH
            base, width = place(kept_axes, kept, row) + column, min(WIDTH, count - column)
            target = row * count + column
            for j in range(width):
                totals[j] = total(start)
                starts[j] = (
                    shift_of(shifts, compute_pointer, compute_type(0), target + j) if shifted else compute_type(0)
                )
            for begin in range(0, lines, TALL):
                for j in range(width):
                    sums[j] = compute_type(start)
                for line in range(begin, min(lines, begin + TALL)):
                    at = base + place(line_axes, reduced, line)
                    for j in range(width):
                        sums[j] = compute_type(combine(sums[j], prepared(widen(x[at + j]), starts[j])))
                for j in range(width):
                    totals[j] = total(combine(totals[j], total(sums[j])))
            for j in range(width):
                y[target + j] = narrow(compute_type(finish(totals[j], size, starts[j])))

    return reduced_columns


@functools.cache
def _kernel(reduction: Reduction, dtype: np.dtype[Any], columns: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    return (_along_columns if columns else _along_rows)(kind, reduction, reduction.start(dtype))


def grouped(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[bool, int, int]]:
    """Axes as (reduced, length, stride in elements), neighbours of one kind as one and those of length one left out."""
    found: list[tuple[bool, int, int]] = []
    stride = math.prod(shape)
    for axis, length in enumerate(shape):
        stride //= length
        if length == 1:
            continue
        reduced = axis in axes
        if found and found[-1][0] == reduced:
            found[-1] = (reduced, found[-1][1] * length, stride)
        else:
            found.append((reduced, length, stride))
    return found


def launch(
    step: Step, reduction: Reduction, x: Buffer, y: Buffer, axes: Sequence[int], shifts: Buffer | None = None
) -> Launch:
    """Reduce a buffer along axes into another, whose shape plays no part."""
    groups = grouped(x.shape, axes)
    columns = bool(groups) and not groups[-1][0]
    inner = groups.pop()[1] if groups and not (columns and len(groups) == 1) else 1
    if columns and not groups:
        columns = False
    kept = [(length, stride) for reduced, length, stride in groups[::-1] if not reduced]
    lines = [(length, stride) for reduced, length, stride in groups[::-1] if reduced]
    size = math.prod(x.shape[axis] for axis in axes)
    outputs = x.count // size
    kept_axes, line_axes = ([length for length, _ in part] + [stride for _, stride in part] for part in (kept, lines))
    limit = outputs // inner * -(-inner // WIDTH) if columns else outputs
    return Launch(
        _kernel(reduction, x.dtype, columns),
        step.parts(limit, x.count * (4.0 if reduction.shifted else 0.3)),
        x=x,
        y=y,
        shifts=0 if shifts is None else shifts,
        outputs=outputs,
        lines=math.prod(length for length, _ in lines),
        count=inner,
        size=size,
        kept=len(kept),
        kept_axes=kept_axes,
        reduced=len(lines),
        line_axes=line_axes,
    )


def axes_of(step: Step, rank: int) -> list[int] | None:
    """Axes that a reduction names, all where it names none; None where they are not known."""
    given = step.constant(1)
    if given is None and len(step.inputs) > 1 and step.inputs[1] is not None:
        return None
    if given is None or not given.size:
        return [] if step.attributes["noop_with_empty_axes"] else list(range(rank))
    return sorted({int(axis) % rank for axis in given.reshape(-1)})


def as_bytes(buffer: Buffer) -> Buffer:
    """Booleans as bytes."""
    return buffer.view(buffer.shape, dtype=np.dtype(np.uint8)) if buffer.dtype == np.bool_ else buffer


@native(*REDUCTIONS, empty=True)
def plan_reduction(step: Step) -> Planned:
    """Axes that are computed, and logarithms and exponentials of integers, are left to NumPy."""
    x = step.inputs[0]
    reduction = REDUCTIONS[step.node.op]
    if x is None or not x.count or element(x.dtype) is None:
        return None
    x, y = as_bytes(x), as_bytes(step.output())
    axes = axes_of(step, len(x.shape))
    floats = x.dtype.kind not in "iu"
    if axes is None or (not floats and reduction.finish in (_logarithm, _shifted_logarithm)):
        return None
    if not reduction.shifted:
        return launch(step, reduction, x, y, axes)
    kind = element(x.dtype)
    assert kind is not None
    if not kind.stored:
        return None
    largest = step.scratch(y.nbytes).view(y.shape, dtype=y.dtype)
    return [launch(step, MAXIMUM, x, largest, axes), launch(step, reduction, x, y, axes, largest)]
