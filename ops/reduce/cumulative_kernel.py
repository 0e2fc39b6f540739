"""Native CumSum and CumProd along one axis."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.element import element
from ...runtime.simd.reduce import add, multiply
from ...runtime.simd.vector import stack_array
from .cumulative import cum_prod, cum_sum

WIDTH = 256
"""Columns that are added up at a time."""


@functools.cache
def _kernel(dtype: np.dtype[Any], product: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    pointer, widen, narrow, compute_type = kind.pointer, kind.widen, kind.narrow, kind.compute_type
    combine, start = (multiply, 1) if product else (add, 0)

    @range_kernel
    def accumulated(
        x: Address,
        y: Address,
        stacks: int,
        lines: int,
        columns: int,
        exclusive: int,
        backwards: int,
        part: int,
        parts: int,
    ) -> None:
        """Totals of lines of columns; `exclusive`: a line counts after itself; `backwards`: lines are taken from the
        last one."""
        x, y = pointer(x), pointer(y)
        totals = stack_array(compute_type, 16)
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * blocks, part, parts)
        for unit in range(first, last):
            stack, column = unit // blocks, unit % blocks * WIDTH
            width = min(WIDTH, columns - column)
            base = stack * lines * columns + column
            for j in range(width):
                totals[j] = compute_type(start)
            for step in range(lines):
                at = base + (lines - 1 - step if backwards != 0 else step) * columns
                for j in range(width):
                    before = totals[j]
                    totals[j] = compute_type(combine(before, widen(x[at + j])))
                    y[at + j] = narrow(before if exclusive != 0 else totals[j])

    return accumulated


@native(cum_sum, cum_prod)
def plan_accumulated(step: Step) -> Planned:
    """An axis that is known."""
    x, axis = step.inputs[0], step.constant(1)
    if x is None or axis is None or axis.size != 1 or element(x.dtype) is None or x.dtype == np.bool_ or not x.shape:
        return None
    along = int(axis.reshape(-1)[0]) % len(x.shape)
    stacks, lines, columns = math.prod(x.shape[:along]), x.shape[along], math.prod(x.shape[along + 1 :])
    kernel = _kernel(x.dtype, step.node.op is cum_prod)
    return Launch(
        kernel,
        step.parts(stacks * -(-columns // WIDTH), x.count * 1.5),
        x=x,
        y=step.output(),
        stacks=stacks,
        lines=lines,
        columns=columns,
        exclusive=int(bool(step.attributes["exclusive"])),
        backwards=int(bool(step.attributes["reverse"])),
    )
