"""Native ArgMax and ArgMin: contiguous rows find the extreme, then its index; other axes compare lines."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...runtime.jit.address import i64, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.element import Element, element
from ...runtime.simd.reduce import along_element, identity, maximum, minimum
from ...runtime.simd.vector import stack_array
from .arg_min_max import arg_max, arg_min

WIDTH = 256
"""Columns that are compared at a time."""


@inlined
def _above(a: Any, b: Any) -> Any:
    return a > b


@inlined
def _below(a: Any, b: Any) -> Any:
    return a < b


def _rows(kind: Element, start: Any, combine: Any) -> RangeKernel:
    pointer, widen, compute_type = kind.pointer, kind.widen, kind.compute_type
    extreme = along_element(kind, start, identity, combine)

    @range_kernel
    def extreme_of_rows(x: Address, y: Address, rows: int, count: int, backwards: int, part: int, parts: int) -> None:
        """From, to, rows, elements of a row, whether the last one counts."""
        x, y = pointer(x), i64(y)
        lanes = stack_array(compute_type, 4)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            base = row * count
            found = compute_type(extreme(x, base, count, compute_type(0), lanes))
            step = -1 if backwards != 0 else 1
            at = count - 1 if backwards != 0 else 0
            for _ in range(count):
                value = widen(x[base + at])
                if value == found or value != value:
                    break
                at += step
            y[row] = at

    return extreme_of_rows


def _columns(kind: Element, better: Any) -> RangeKernel:
    pointer, widen, compute_type = kind.pointer, kind.widen, kind.compute_type

    @range_kernel
    def extreme_of_columns(
        x: Address, y: Address, stacks: int, lines: int, columns: int, backwards: int, part: int, parts: int
    ) -> None:
        """From, to, stacks, lines of a stack, columns, whether the last one counts."""
        x, y = pointer(x), i64(y)
        best = stack_array(compute_type, 16)
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * blocks, part, parts)
        for unit in range(first, last):
            stack, column = unit // blocks, unit % blocks * WIDTH
            width = min(WIDTH, columns - column)
            start = lines - 1 if backwards != 0 else 0
            base, target = stack * lines * columns + column, stack * columns + column
            for j in range(width):
                best[j] = widen(x[base + start * columns + j])
                y[target + j] = start
            for step in range(1, lines):
                line = lines - 1 - step if backwards != 0 else step
                at = base + line * columns
                for j in range(width):
                    value = widen(x[at + j])
                    taken = (better(value, best[j]) or value != value) and best[j] == best[j]
                    best[j] = value if taken else best[j]
                    y[target + j] = line if taken else y[target + j]

    return extreme_of_columns


@functools.cache
def _kernel(dtype: np.dtype[Any], largest: bool, columns: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    if columns:
        return _columns(kind, _above if largest else _below)
    whole = dtype.kind in "iu"
    start = (
        (-math.inf if largest else math.inf)
        if not whole
        else int(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)
    )
    return _rows(kind, start, maximum if largest else minimum)


@native(arg_max, arg_min)
def plan_arg(step: Step) -> Planned:
    """One axis of any dtype that kernels read."""
    x = step.inputs[0]
    if x is None or element(x.dtype) is None or x.dtype == np.bool_ or not x.shape:
        return None
    axis = step.attributes["axis"] % len(x.shape)
    stacks, lines, columns = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    kernel = _kernel(x.dtype, step.node.op is arg_max, columns > 1)
    backwards = int(step.attributes["select_last_index"])
    if columns == 1:
        return Launch(
            kernel,
            step.parts(stacks, x.count * 0.7),
            x=x,
            y=step.output(),
            rows=stacks,
            count=lines,
            backwards=backwards,
        )
    parts = step.parts(stacks * -(-columns // WIDTH), x.count * 1.0)
    return Launch(kernel, parts, x=x, y=step.output(), stacks=stacks, lines=lines, columns=columns, backwards=backwards)
