"""Native reductions over any axes. Where the last axis is reduced, numbers are taken along it; otherwise whole lines are combined."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.element import Element, element
from ...runtime.kernel import RangeKernel, inlined, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import share
from ...runtime.record import dataclass
from ...runtime.simd import room
from . import reduce
from .lanes_kernel import along_element, larger, plain, plus, smaller, times

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
        start: what combining leaves as it is; prepared, combine, finish: on the way in, between two, and on the way out.
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
MAXIMUM = Reduction(_least, plain, larger, _whole)
REDUCTIONS = {
    reduce.reduce_sum: Reduction(ZERO, plain, plus, _whole),
    reduce.reduce_mean: Reduction(ZERO, plain, plus, _mean),
    reduce.reduce_prod: Reduction(lambda dtype: 1, plain, times, _whole),
    reduce.reduce_max: MAXIMUM,
    reduce.reduce_min: Reduction(_most, plain, smaller, _whole),
    reduce.reduce_l1: Reduction(ZERO, _size_of, plus, _whole),
    reduce.reduce_l2: Reduction(ZERO, _square, plus, _root),
    reduce.reduce_sum_square: Reduction(ZERO, _square, plus, _whole),
    reduce.reduce_log_sum: Reduction(ZERO, plain, plus, _logarithm),
    reduce.reduce_log_sum_exp: Reduction(ZERO, _power, plus, _shifted_logarithm, shifted=True),
}


@inlined
def place(args: Any, first: Any, count: Any, index: Any) -> Any:
    """Offset of an index among axes: `count` lengths from `first` on, the last axis first, then as many strides."""
    found = 0
    for axis in range(count - 1):
        length = args[first + axis]
        rest = index // length
        found += (index - rest * length) * args[first + count + axis]
        index = rest
    return found + index * args[first + 2 * count - 1] if count > 0 else found


@inlined
def shift_of(args: Any, pointer: Any, none: Any, index: Any) -> Any:
    """What elements are relative to: where there is a largest one that is finite, that."""
    if args[2] == 0:
        return none
    found = pointer(args[2])[index]
    return found if abs(found) < np.inf else none


def _along_rows(kind: Element, reduction: Reduction, start: Any) -> RangeKernel:
    pointer, numbers, written, number = kind.pointer, kind.pointer_to_numbers, kind.written, kind.number
    finish, combine, total, shifted = reduction.finish, reduction.combine, kind.total, reduction.shifted
    prepared = reduction.prepared(kind.math.exp if kind.number is np.float32 else math.exp) if shifted else reduction.prepared
    row = along_element(kind, start, prepared, combine)

    @range_kernel
    def reduced_rows(args: Any, part: Any, parts: Any) -> None:
        """From, to, shifts, outputs, lines of an output, elements of a line and of an output; axes kept and reduced: count, lengths, strides."""
        x, y = pointer(args[0]), pointer(args[1])
        outputs, lines, count, size, kept = args[3], args[4], args[5], args[6], args[7]
        other = 8 + 2 * kept
        lanes = room(number, 4)
        first, last = share(outputs, part, parts)
        for output in range(first, last):
            base = place(args, 8, kept, output)
            shift = shift_of(args, numbers, number(0), output) if shifted else number(0)
            found = total(start)
            for line in range(lines):
                at = base + place(args, other + 1, args[other], line)
                found = total(combine(found, row(x, at, count, shift, lanes)))
            y[output] = written(number(finish(found, size, shift)))

    return reduced_rows


def _along_columns(kind: Element, reduction: Reduction, start: Any) -> RangeKernel:
    pointer, numbers, read, written, number = kind.pointer, kind.pointer_to_numbers, kind.read, kind.written, kind.number
    finish, combine, total, shifted = reduction.finish, reduction.combine, kind.total, reduction.shifted
    prepared = reduction.prepared(kind.math.exp if kind.number is np.float32 else math.exp) if shifted else reduction.prepared

    @range_kernel
    def reduced_columns(args: Any, part: Any, parts: Any) -> None:
        """As above, where a line has an element of `count` outputs that lie together."""
        x, y = pointer(args[0]), pointer(args[1])
        outputs, lines, count, size, kept = args[3], args[4], args[5], args[6], args[7]
        other = 8 + 2 * kept
        blocks = (count + WIDTH - 1) // WIDTH
        sums, totals, shifts = room(number, 64), room(total, 64), room(number, 64)
        first, last = share(outputs // count * blocks, part, parts)
        for unit in range(first, last):
            row, column = unit // blocks, unit % blocks * WIDTH
            base, width = place(args, 8, kept, row) + column, min(WIDTH, count - column)
            target = row * count + column
            for j in range(width):
                totals[j] = total(start)
                shifts[j] = shift_of(args, numbers, number(0), target + j) if shifted else number(0)
            for begin in range(0, lines, TALL):
                for j in range(width):
                    sums[j] = number(start)
                for line in range(begin, min(lines, begin + TALL)):
                    at = base + place(args, other + 1, args[other], line)
                    for j in range(width):
                        sums[j] = number(combine(sums[j], prepared(read(x[at + j]), shifts[j])))
                for j in range(width):
                    totals[j] = total(combine(totals[j], total(sums[j])))
            for j in range(width):
                y[target + j] = written(number(finish(totals[j], size, shifts[j])))

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


def launch(step: Step, reduction: Reduction, x: Buffer, y: Buffer, axes: Sequence[int], shifts: Buffer | None = None) -> Launch:
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
    arguments: list[Any] = [x, y, shifts if shifts is not None else 0, outputs, math.prod(length for length, _ in lines), inner, size]
    for part in (kept, lines):
        arguments += [len(part), *(length for length, _ in part), *(stride for _, stride in part)]
    limit = outputs // inner * -(-inner // WIDTH) if columns else outputs
    return Launch(_kernel(reduction, x.dtype, columns), arguments, step.parts(limit, x.count * (4.0 if reduction.shifted else 0.3)))


def axes_of(step: Step, rank: int) -> list[int] | None:
    """Axes that a reduction names, all where it names none; None where they are not known."""
    given = step.constant(1)
    if given is None and len(step.inputs) > 1 and step.inputs[1] is not None:
        return None
    if given is None or not given.size:
        return [] if step.attributes["noop_with_empty_axes"] else list(range(rank))
    return sorted({int(axis) % rank for axis in given.reshape(-1)})


def as_bytes(buffer: Buffer) -> Buffer:
    """Truth values as the bytes that they are."""
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
