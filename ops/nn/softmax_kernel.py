"""Native Softmax and LogSoftmax over any axis: along contiguous rows, or over columns in lanes."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.element import Element, element
from ...runtime.simd.memory import exp16, load_f32, store_f32
from ...runtime.simd.memory import lane_max as largest_lane
from ...runtime.simd.memory import lane_sum as sum_of_lanes
from ...runtime.simd.memory import maximum as wider
from ...runtime.simd.reduce import add, along_element, identity, maximum
from ...runtime.simd.vector import address_of, splat, stack_array
from .log_softmax import log_softmax
from .softmax import softmax

WIDTH = 256
"""Columns that are computed at a time."""


def _exp(kind: Element) -> Any:
    return kind.math.exp if kind.number is np.float32 else math.exp


@functools.cache
def _power(exp: Any) -> Any:
    @inlined
    def power(value: Any, shift: Any) -> Any:
        return exp(value - shift)

    return power


@functools.cache
def _kept(kind: Element, rounds: bool) -> Any:
    """A step's result as the next one sees it: softmax of narrow dtypes rounds every step, as its function does."""
    read, written = kind.read, kind.written

    @inlined
    def rounded(value: Any) -> Any:
        return read(written(value))

    @inlined
    def whole(value: Any) -> Any:
        return value

    return rounded if rounds else whole


@inlined
def _total(rounded: Any, exact: Any) -> Any:
    return rounded if rounded < math.inf else exact


def _rows(kind: Element, logarithm: bool) -> RangeKernel:
    pointer, read, written, number, stored = kind.pointer, kind.read, kind.written, kind.number, kind.stored
    exp = _exp(kind)
    largest, powers = along_element(kind, -math.inf, identity, maximum), along_element(kind, 0, _power(exp), add)
    sums = along_element(kind, 0, identity, add)
    narrow = not stored and not logarithm
    kept = _kept(kind, narrow)

    @range_kernel(fastmath={"contract"})
    def softmax_rows(x: Address, y: Address, rows: int, count: int, part: int, parts: int) -> None:
        """From, to, rows, elements of a row."""
        x, y = pointer(x), pointer(y)
        lanes = stack_array(number, 4)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            base = row * count
            most = number(largest(x, base, count, number(0), lanes))
            if logarithm:
                whole = number(powers(x, base, count, most, lanes))
                lower = number(math.log(whole))
                for j in range(base, base + count):
                    y[j] = written(read(x[j]) - most - lower)
            elif narrow:
                for j in range(base, base + count):
                    y[j] = written(exp(kept(read(x[j]) - most)))
                whole = number(sums(y, base, count, number(0), lanes))
                whole = _total(kept(whole), whole)
                for j in range(base, base + count):
                    y[j] = written(read(y[j]) / whole)
            else:
                for j in range(base, base + count):
                    y[j] = written(exp(read(x[j]) - most))
                scale = number(1) / number(sums(y, base, count, number(0), lanes))
                for j in range(base, base + count):
                    y[j] = written(read(y[j]) * scale)

    return softmax_rows


@range_kernel
def single_rows(x: Address, y: Address, rows: int, count: int, logarithm: int, part: int, parts: int) -> None:
    """Softmax of f32 rows, sixteen numbers at a time: from, to, rows, elements of a row, whether the logarithm is
    wanted."""
    tail = stack_array(np.float32, 1)
    behind = address_of(tail)
    first, last = share(rows, part, parts)
    whole = count - count % 16
    for row in range(first, last):
        start, target = x + 4 * row * count, y + 4 * row * count
        for k in range(16):
            tail[k] = f32(start)[whole + k] if k < count - whole else np.float32(-np.inf)
        rest = load_f32(behind)
        two = rest
        for j in range(0, whole - 16, 32):
            rest = wider(rest, load_f32(start + 4 * j))
            two = wider(two, load_f32(start + 4 * j + 64))
        if whole % 32 != 0:
            rest = wider(rest, load_f32(start + 4 * whole - 64))
        most = largest_lane(wider(rest, two))
        one, two = exp16(load_f32(behind) - most), splat(np.float32(0))
        if logarithm == 0:
            store_f32(behind, one)
            for j in range(0, whole, 16):
                power = exp16(load_f32(start + 4 * j) - most)
                store_f32(target + 4 * j, power)
                two = two + power
            scale = np.float32(1) / sum_of_lanes(one + two)
            for j in range(0, whole, 16):
                store_f32(target + 4 * j, load_f32(target + 4 * j) * scale)
            for k in range(count - whole):
                f32(target)[whole + k] = tail[k] * scale
        else:
            for j in range(0, whole, 16):
                two = two + exp16(load_f32(start + 4 * j) - most)
            lower = most + np.float32(math.log(sum_of_lanes(one + two)))
            for j in range(0, whole, 16):
                store_f32(target + 4 * j, load_f32(start + 4 * j) - lower)
            for k in range(count - whole):
                f32(target)[whole + k] = tail[k] - lower


def _columns(kind: Element, logarithm: bool) -> RangeKernel:
    pointer, read, written, number = kind.pointer, kind.read, kind.written, kind.number
    exp, narrow = _exp(kind), not kind.stored and not logarithm
    kept = _kept(kind, narrow)

    @range_kernel(fastmath={"contract"})
    def softmax_columns(x: Address, y: Address, stacks: int, lines: int, columns: int, part: int, parts: int) -> None:
        """From, to, stacks, lines of a stack, columns: each column of a stack by itself."""
        x, y = pointer(x), pointer(y)
        most, whole = stack_array(number, 16), stack_array(number, 16)
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * blocks, part, parts)
        for unit in range(first, last):
            stack, column = unit // blocks, unit % blocks * WIDTH
            width = min(WIDTH, columns - column)
            start = stack * lines * columns + column
            for j in range(width):
                most[j] = number(-math.inf)
                whole[j] = number(0)
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    most[j] = maximum(most[j], read(x[at + j]))
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    whole[j] += kept(exp(kept(read(x[at + j]) - most[j])))
            for j in range(width):
                whole[j] = (
                    math.log(whole[j])
                    if logarithm
                    else _total(kept(whole[j]), whole[j])
                    if narrow
                    else number(1) / whole[j]
                )
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    value = kept(read(x[at + j]) - most[j])
                    if narrow:
                        y[at + j] = written(kept(exp(value)) / whole[j])
                    else:
                        y[at + j] = written(value - whole[j] if logarithm else exp(value) * whole[j])

    return softmax_columns


@functools.cache
def _kernel(dtype: np.dtype[Any], logarithm: bool, columns: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    return (_columns if columns else _rows)(kind, logarithm)


@native(softmax, log_softmax)
def plan_softmax(step: Step) -> Planned:
    """Floats over one axis."""
    x = step.inputs[0]
    if x is None or element(x.dtype) is None or x.dtype.kind in "iub" or not x.shape:
        return None
    axis = step.attributes["axis"] % len(x.shape)
    stacks, lines, columns = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if columns == 1 and x.dtype == np.float32:
        return Launch(
            single_rows,
            step.parts(stacks, x.count * 1.0),
            x=x,
            y=step.output(),
            rows=stacks,
            count=lines,
            logarithm=int(step.node.op is log_softmax),
        )
    kernel = _kernel(x.dtype, step.node.op is log_softmax, columns > 1)
    if columns == 1:
        return Launch(kernel, step.parts(stacks, x.count * 3.0), x=x, y=step.output(), rows=stacks, count=lines)
    parts = step.parts(stacks * -(-columns // WIDTH), x.count * 5.0)
    return Launch(kernel, parts, x=x, y=step.output(), stacks=stacks, lines=lines, columns=columns)
