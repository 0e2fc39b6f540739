"""Native CumSum and CumProd along one axis: columns side by side, or one number after another."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...runtime.element import element
from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import share
from ...runtime.simd import room
from ..reduce.lanes_kernel import plus, times
from .cumulative import cum_prod, cum_sum

WIDTH = 256
"""Columns that are added up at a time."""


@functools.cache
def _kernel(dtype: np.dtype[Any], product: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    pointer, read, written, number = kind.pointer, kind.read, kind.written, kind.number
    combine, start = (times, 1) if product else (plus, 0)

    @range_kernel
    def accumulated(args: Any, part: Any, parts: Any) -> None:
        """From, to, stacks, lines of a stack, columns, whether a line counts after itself, whether lines are taken from the last one."""
        x, y, stacks, lines, columns, exclusive, backwards = pointer(args[0]), pointer(args[1]), args[2], args[3], args[4], args[5], args[6]
        totals = room(number, 16)
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * blocks, part, parts)
        for unit in range(first, last):
            stack, column = unit // blocks, unit % blocks * WIDTH
            width = min(WIDTH, columns - column)
            base = stack * lines * columns + column
            for j in range(width):
                totals[j] = number(start)
            for step in range(lines):
                at = base + (lines - 1 - step if backwards != 0 else step) * columns
                for j in range(width):
                    before = totals[j]
                    totals[j] = number(combine(before, read(x[at + j])))
                    y[at + j] = written(before if exclusive != 0 else totals[j])

    return accumulated


@native(cum_sum, cum_prod)
def plan_accumulated(step: Step) -> Planned:
    """An axis that is known."""
    x, axis = step.inputs[0], step.constant(1)
    if x is None or axis is None or axis.size != 1 or element(x.dtype) is None or x.dtype == np.bool_ or not x.shape:
        return None
    along = int(axis.reshape(-1)[0]) % len(x.shape)
    stacks, lines, columns = math.prod(x.shape[:along]), x.shape[along], math.prod(x.shape[along + 1 :])
    flags = (int(bool(step.attributes["exclusive"])), int(bool(step.attributes["reverse"])))
    arguments = (x, step.output(), stacks, lines, columns, *flags)
    kernel = _kernel(x.dtype, step.node.op is cum_prod)
    return Launch(kernel, arguments, step.parts(stacks * -(-columns // WIDTH), x.count * 1.5))
