"""Native MaxPoolGrad of f32, for windows side by side."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.numba_lazy import intrinsic, types
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.llvm_vector import Code
from .max_pool_grad import max_pool_grad, side_by_side

COST = 6.0
"""Scalar operations for each element."""


@inner
def _exceeds(value: Any, best: Any) -> Any:
    """Whether an element replaces the largest one before it; the first NaN is the largest of all."""
    return (value > best) | ((value != value) & (best == best))


def _squares(lanes: int) -> Any:
    """A function of kernels that gives gradients to `lanes` windows of 2 x 2: addresses of their first row and of what
    it gets, of their gradients, and bytes from row to row."""
    kind, order = ir.VectorType(ir.FloatType(), lanes), ir.VectorType(ir.IntType(32), 2 * lanes)
    halves = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(odd, 2 * lanes, 2))) for odd in (0, 1)]
    woven = ir.Constant(order, [lane // 2 + lane % 2 * lanes for lane in range(2 * lanes)])

    def squares(typing: Any, x: Any, grad: Any, y: Any, row: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            code = Code(builder)
            x, grad, y, row = args
            wide = ir.VectorType(ir.FloatType(), 2 * lanes)
            elements = []
            for place in (x, builder.add(x, row)):
                line = code.load(place, wide)
                elements += [builder.shuffle_vector(line, line, half) for half in halves]
            best, *others = elements
            wins = []
            for value in others:
                missing = builder.and_(
                    builder.fcmp_unordered("uno", value, value), builder.fcmp_ordered("ord", best, best)
                )
                wins.append(builder.or_(builder.fcmp_ordered(">", value, best), missing))
                best = builder.select(wins[-1], value, best)
            given, none, later = code.load(grad, kind), ir.Constant(kind, [0.0] * lanes), None
            found = []
            for win in reversed(wins):
                mine = win if later is None else builder.and_(win, builder.not_(later))
                found.append(builder.select(mine, given, none))
                later = win if later is None else builder.or_(later, win)
            found.append(builder.select(later, none, given))
            first, second, third, fourth = reversed(found)
            code.store(builder.shuffle_vector(first, second, woven), y)
            code.store(builder.shuffle_vector(third, fourth, woven), builder.add(y, row))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), lower

    return intrinsic(squares)


_sixteen, _eight, _four, _one = map(_squares, (16, 8, 4, 1))


@inner
def _line_of_squares(x: int, grad: int, y: int, row: int, count: int) -> None:
    """A line of windows of 2 x 2; `row` is bytes from row to row."""
    out = 0
    while out < count:
        left, at = count - out, 8 * out
        if left >= 16:
            _sixteen(x + at, grad + 4 * out, y + at, row)
            out += 16
        elif left >= 8:
            _eight(x + at, grad + 4 * out, y + at, row)
            out += 8
        elif left >= 4:
            _four(x + at, grad + 4 * out, y + at, row)
            out += 4
        else:
            _one(x + at, grad + 4 * out, y + at, row)
            out += 1


@range_kernel
def given_to_largest(
    x: Address,
    grad: Address,
    y: Address,
    planes: int,
    height: int,
    width: int,
    out_height: int,
    out_width: int,
    kernel_height: int,
    kernel_width: int,
    part: int,
    parts: int,
) -> None:
    """Planes of adjacent windows; elements after the last window get nothing."""
    source, given, found = f32(x), f32(grad), f32(y)
    squares = kernel_height == 2 and kernel_width == 2
    first, last = share(planes, part, parts)
    for plane in range(first, last):
        base = plane * height * width
        if not squares or 2 * out_height < height or 2 * out_width < width:
            for j in range(height * width):
                found[base + j] = np.float32(0)
        for row in range(out_height):
            top, line = base + row * kernel_height * width, (plane * out_height + row) * out_width
            if squares:
                _line_of_squares(x + 4 * top, grad + 4 * line, y + 4 * top, 4 * width, out_width)
                continue
            for out in range(out_width):
                begin = top + out * kernel_width
                best, place = source[begin], begin
                for i in range(kernel_height):
                    for j in range(kernel_width):
                        at = begin + i * width + j
                        if _exceeds(source[at], best):
                            best, place = source[at], at
                found[place] = given[line + out]


@native(max_pool_grad)
def plan_max_pool_grad(step: Step) -> Planned:
    """Plan one or two spatial axes; NumPy computes windows that overlap, have gaps or are padded."""
    x, grad, attributes = step.input(0), step.input(1), step.attributes
    axes = len(x.shape) - 2
    kernel = attributes["kernel_shape"]
    if x.dtype != np.float32 or axes not in (1, 2) or not side_by_side(attributes, x.shape[2:], grad.shape[2:]):
        return None
    missing = [1] * (2 - axes)
    (height, width), out, taps = (missing + list(item) for item in (x.shape[2:], grad.shape[2:], kernel))
    planes = x.shape[0] * x.shape[1]
    return Launch(
        given_to_largest, step.parts(planes, COST * x.count), x=x, grad=grad, y=step.output(), planes=planes,
        height=height, width=width, out_height=out[0], out_width=out[1], kernel_height=taps[0], kernel_width=taps[1],
    )  # fmt: skip
