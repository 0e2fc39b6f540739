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
    return kind.math.exp if kind.compute_type is np.float32 else math.exp


@functools.cache
def _power(exp: Any) -> Any:
    @inlined
    def power(value: Any, shift: Any) -> Any:
        return exp(value - shift)

    return power


@functools.cache
def _kept(kind: Element, rounds: bool) -> Any:
    """A step's result as the next one sees it: softmax of narrow dtypes rounds every step, as its function does."""
    widen, narrow = kind.widen, kind.narrow

    @inlined
    def rounded(value: Any) -> Any:
        return widen(narrow(value))

    @inlined
    def whole(value: Any) -> Any:
        return value

    return rounded if rounds else whole


@inlined
def _total(rounded: Any, exact: Any) -> Any:
    return rounded if rounded < math.inf else exact


def _rows(kind: Element, logarithm: bool) -> RangeKernel:
    pointer, widen, narrow, compute_type, stored = kind.pointer, kind.widen, kind.narrow, kind.compute_type, kind.stored
    exp = _exp(kind)
    largest, powers = along_element(kind, -math.inf, identity, maximum), along_element(kind, 0, _power(exp), add)
    sums = along_element(kind, 0, identity, add)
    rounds = not stored and not logarithm
    kept = _kept(kind, rounds)

    @range_kernel(fastmath={"contract"})
    def softmax_rows(x: Address, y: Address, rows: int, count: int, part: int, parts: int) -> None:
        """From, to, rows, elements of a row."""
        x, y = pointer(x), pointer(y)
        lanes = stack_array(compute_type, 4)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            base = row * count
            most = compute_type(largest(x, base, count, compute_type(0), lanes))
            if logarithm:
                whole = compute_type(powers(x, base, count, most, lanes))
                lower = compute_type(math.log(whole))
                for j in range(base, base + count):
                    y[j] = narrow(widen(x[j]) - most - lower)
            elif rounds:
                for j in range(base, base + count):
                    y[j] = narrow(exp(kept(widen(x[j]) - most)))
                whole = compute_type(sums(y, base, count, compute_type(0), lanes))
                whole = _total(kept(whole), whole)
                for j in range(base, base + count):
                    y[j] = narrow(widen(y[j]) / whole)
            else:
                for j in range(base, base + count):
                    y[j] = narrow(exp(widen(x[j]) - most))
                scale = compute_type(1) / compute_type(sums(y, base, count, compute_type(0), lanes))
                for j in range(base, base + count):
                    y[j] = narrow(widen(y[j]) * scale)

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
    pointer, widen, narrow, compute_type = kind.pointer, kind.widen, kind.narrow, kind.compute_type
    exp, rounds = _exp(kind), not kind.stored and not logarithm
    kept = _kept(kind, rounds)

    @range_kernel(fastmath={"contract"})
    def softmax_columns(x: Address, y: Address, stacks: int, lines: int, columns: int, part: int, parts: int) -> None:
        """From, to, stacks, lines of a stack, columns: each column of a stack by itself."""
        x, y = pointer(x), pointer(y)
        most, whole = stack_array(compute_type, 16), stack_array(compute_type, 16)
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * blocks, part, parts)
        for unit in range(first, last):
            stack, column = unit // blocks, unit % blocks * WIDTH
            width = min(WIDTH, columns - column)
            start = stack * lines * columns + column
            for j in range(width):
                most[j] = compute_type(-math.inf)
                whole[j] = compute_type(0)
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    most[j] = maximum(most[j], widen(x[at + j]))
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    whole[j] += kept(exp(kept(widen(x[at + j]) - most[j])))
            for j in range(width):
                whole[j] = (
                    math.log(whole[j])
                    if logarithm
                    else _total(kept(whole[j]), whole[j])
                    if rounds
                    else compute_type(1) / whole[j]
                )
            for line in range(lines):
                at = start + line * columns
                for j in range(width):
                    value = kept(widen(x[at + j]) - most[j])
                    if rounds:
                        y[at + j] = narrow(kept(exp(value)) / whole[j])
                    else:
                        y[at + j] = narrow(value - whole[j] if logarithm else exp(value) * whole[j])

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
