"""Linear quantization on the device: QuantizeLinear and its relatives, integer products and convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.element.small_dtypes import SMALL
from ...runtime.cuda.kernel.elementwise import chain_step, elementwise_chain, elementwise_launch
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain
from ...runtime.plan.rows import Fold, larger, smaller
from ...runtime.tensor.dtype import of_numpy
from ..cast.cast import element_type
from ..conv.conv_cuda import convolved
from ..elementwise.unary import _round as to_even
from ..linalg.matmul_cuda import matrices
from ..rules.sliding_window import window
from .conv_integer import conv_integer
from .dynamic_quantize_linear import dynamic_quantize_linear
from .matmul_integer import matmul_integer
from .quantize_linear import dequantize_linear, integer_range, quantize_linear

F32, F64, I32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)


def saturated(whole: float, low: float, high: float) -> float:
    """Within the bounds; NaN is the lower one."""
    return low if not whole > low else high if whole > high else whole


def _over(x: float, scale: float) -> float:
    return x / scale


def _nearest(x: float, low: float, high: float) -> float:
    return saturated(to_even(x), low, high)


def _nearest_shifted(x: float, zero: float, low: float, high: float) -> float:
    return saturated(to_even(x) + zero, low, high)


def _bounded(x: float, low: float, high: float) -> float:
    return low if x < low else high if x > high else x


def _bounded_shifted(x: float, zero: float, low: float, high: float) -> float:
    return _bounded(x + zero, low, high)


def _shifted(x: float, scale: float, zero: float, low: float, high: float) -> float:
    return saturated(to_even(x / scale) + zero, low, high)


def bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Lowest and highest value of an integer dtype."""
    return integer_range(of_numpy(dtype))


def spread(step: Step, scale: Buffer, x: Buffer) -> Operand | None:
    """A scale or zero point over the elements of `x`; None where it does not fit."""
    axis, block, rank = step.attributes["axis"], step.attributes["block_size"], len(x.shape)
    if scale.count == 1 and not block:
        return Operand(scale, (0,) * rank)
    if not -rank <= axis < rank:
        return None
    axis %= rank
    if len(scale.shape) == 1 and not block and scale.count == x.shape[axis]:
        return Operand(scale, tuple(int(other == axis) for other in range(rank)))
    if block > 0 and len(scale.shape) == rank:
        table = step.constant_buffer(np.arange(x.shape[axis]) // block)
        strides = tuple(0 if other == axis else item for other, item in enumerate(scale.strides))
        along = tuple(int(other == axis) for other in range(rank))
        return Operand(scale, strides, lookups=(Lookup(table, along, scale.strides[axis], scale.shape[axis]),))
    return None


@cuda(quantize_linear)
def quantize_on_device(step: Step) -> Planned:
    """Plan integers and 8-bit floats; quotients in half precision are rounded to it."""
    x, scale, zero, y = step.input(0), step.input(1), step.optional_input(2), step.output()
    precision = step.attributes["precision"]
    wide = element_type(precision).as_numpy() if precision else scale.dtype
    half = wide.name in ("float16", "bfloat16")
    kind = F64 if wide.kind in "iu" else wide if wide.name == "float64" else F32
    operands = [over(x, x.shape)] + [spread(step, item, x) for item in (scale, zero) if item is not None]
    found = [item for item in operands if item is not None]
    if len(found) < len(operands):
        return "unsupported shape of the scale"
    small = SMALL.get(y.dtype.name)
    if y.dtype.name == "float8_e8m0fnu":
        return "rounding to float8e8m0 is supported on the CPU only"
    steps = (
        [chain_step(_same, (x,), wide, compute=kind), chain_step(_over, (None, scale), wide, compute=kind)]
        if half
        else [chain_step(_over, (x, scale), kind, compute=kind)]
    )
    if small is None:
        low, high = map(float, bounds(y.dtype))
    else:
        low, high = (-small.largest, small.largest) if step.attributes["saturate"] else (-math.inf, math.inf)
    shifts = (None,) if zero is None else (None, zero)
    function = (
        (_nearest if zero is None else _nearest_shifted)
        if small is None
        else _bounded
        if zero is None
        else _bounded_shifted
    )
    steps.append(chain_step(function, shifts, y.dtype, low, high, compute=kind))
    return elementwise_launch(steps, x.shape, found, over(y, y.shape))


def _real(x: float, scale: float) -> float:
    return x * scale


def _centred(x: float, scale: float, zero: float) -> float:
    return (x - zero) * scale


@cuda(dequantize_linear)
def dequantize_on_device(step: Step) -> Planned:
    """Dequantize in f32, then round to the output's dtype."""
    x, scale, zero, y = step.input(0), step.input(1), step.optional_input(2), step.output()
    operands = [over(x, x.shape)] + [spread(step, item, x) for item in (scale, zero) if item is not None]
    found = [item for item in operands if item is not None]
    if len(found) < len(operands):
        return "unsupported shape of the scale"
    if x.dtype.itemsize > 2 and zero is not None:
        return "32-bit zero points are supported on the CPU only"
    apply = chain_step(_real if zero is None else _centred, [item.buffer for item in found], y.dtype, compute=F32)
    return elementwise_launch([apply], x.shape, found, over(y, y.shape))


def _less(x: int, zero: int) -> int:
    return x - zero


def _same(x: int) -> int:
    return x


def centred(step: Step, x: Buffer, zero: Buffer | None) -> tuple[Buffer, Chain]:
    """x - zero as i32, for a zero point in a shape that broadcasts."""
    made = step.temporary(I32, x.shape)
    return made, elementwise_chain(_same, [x], made, compute=I32) if zero is None else elementwise_chain(
        _less, [x, zero], made, compute=I32
    )


def _by_row(value: Buffer | None) -> Buffer | None:
    return value if value is None or len(value.shape) != 1 or value.count == 1 else value.view((value.count, 1))


def sums_of_products(
    step: Step, a: Buffer, b: Buffer, a_zero: Buffer | None, b_zero: Buffer | None, y: Buffer
) -> list[Launch | Chain]:
    """i32 sums of (a - a_zero) @ (b - b_zero)."""
    left, first = centred(step, a, _by_row(a_zero))
    right, second = centred(step, b, b_zero)
    return [first, second, matrices(left, right, y, y.shape[:-2])]


@cuda(matmul_integer)
def matmul_integer_on_device(step: Step) -> Planned:
    """Multiply integer matrices."""
    a, b, y = step.input(0), step.input(1), step.output()
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "products of vectors are supported on the CPU only"
    return sums_of_products(step, a, b, step.optional_input(2), step.optional_input(3), y)


def _channels(value: Buffer | None, behind: int) -> Buffer | None:
    return None if value is None else value.view(()) if value.count == 1 else value.view((value.count, *[1] * behind))


def sums_of_windows(
    step: Step, x: Buffer, w: Buffer, x_zero: Buffer | None, w_zero: Buffer | None, y: Buffer
) -> list[Launch | Chain]:
    """i32 sums of a convolution of centred integers."""
    settings = (step.attributes[name] for name in ("strides", "pads", "dilations", "auto_pad"))
    axes = window(step.node.op.name, len(x.shape) - 2, w.shape[2:], *settings).axes(x.shape[2:])
    left, first = centred(step, x, _channels(x_zero, 0))
    right, second = centred(step, w, _channels(w_zero, len(w.shape) - 1))
    return [first, second, *convolved(step, left, right, y, axes, step.attributes["group"])]


@cuda(conv_integer)
def conv_integer_on_device(step: Step) -> Planned:
    """Convolve integers."""
    return sums_of_windows(
        step, step.input(0), step.input(1), step.optional_input(2), step.optional_input(3), step.output()
    )


def _element(x: float) -> float:
    return x


def _at_most_zero(total: float) -> float:
    return total if total < 0 else total * 0


def _at_least_zero(total: float) -> float:
    return total if total > 0 else total * 0


def _scale(low: float, high: float) -> float:
    return (high - low) / 255 if high != low else 1


def _zero(low: float, high: float) -> float:
    return saturated(to_even(-low / _scale(low, high)), 0, 255)


@cuda(dynamic_quantize_linear)
def dynamic_on_device(step: Step) -> Planned:
    """Reduce to the range of all elements, then quantize each."""
    x = step.input(0)
    flat = x.view((x.count,))
    scale, zero = (
        step.output(index) if step.is_used(index) else step.temporary(dtype, ())
        for index, dtype in ((1, F32), (2, np.uint8))
    )
    folds = [Fold("low", _element, smaller, _at_most_zero), Fold("high", _element, larger, _at_least_zero)]
    results = [Result(_scale, Operand(scale, (0,)), per_row=True), Result(_zero, Operand(zero, (0,)), per_row=True)]
    launches: list[Launch | Chain] = [
        reduce_rows([], flat.shape, {"x": over(flat, flat.shape)}, folds, results, compute_dtype(x.dtype))
    ]
    if step.is_used(0):
        y = step.output()
        launches.append(Chain((chain_step(_shifted, [x, scale, zero], y.dtype, 0, 255),), y))
    return launches
