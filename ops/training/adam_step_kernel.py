"""Native AdamStep of f32: parameters and both means are read and written once."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from .adam_step import adam_step

STRIP = 1024
"""Elements of a strip, which stays in cache from loop to loop; each loop writes one array, so that it is vectorized."""
COST = 8.0


@range_kernel
def adam_stepped(
    value: Address,
    grad: Address,
    mean: Address,
    square: Address,
    rate: Address,
    scale: Address,
    eps: Address,
    share1: Address,
    keep2: Address,
    share2: Address,
    shrink: Address,
    decay: Address,
    values: Address,
    means: Address,
    squares: Address,
    count: int,
    part: int,
    parts: int,
) -> None:
    """A part of the elements, strip by strip."""
    value, grad, mean, square = f32(value), f32(grad), f32(mean), f32(square)
    values, means, squares = f32(values), f32(means), f32(squares)
    rate, scale, eps, shrink, decay = f32(rate)[0], f32(scale)[0], f32(eps)[0], f32(shrink)[0], f32(decay)[0]
    share1, keep2, share2 = f32(share1)[0], f32(keep2)[0], f32(share2)[0]
    first, last = share((count + STRIP - 1) // STRIP, part, parts)
    for strip in range(first, last):
        begin = strip * STRIP
        end = min(begin + STRIP, count)
        for j in range(begin, end):
            means[j] = mean[j] + share1 * (grad[j] + value[j] * decay - mean[j])
        for j in range(begin, end):
            slope = grad[j] + value[j] * decay
            squares[j] = square[j] * keep2 + share2 * (slope * slope)
        for j in range(begin, end):
            values[j] = value[j] * shrink - rate * (means[j] / (math.sqrt(squares[j]) / scale + eps))


@native(adam_step)
def plan_adam_step(step: Step) -> Planned:
    """One launch; NumPy computes f64, and shapes that broadcast."""
    if any(each is None or each.dtype != np.float32 for each in step.inputs):
        return None
    value, grad, mean, square, *numbers = (each for each in step.inputs if each is not None)
    shapes = {each.shape for each in (value, grad, mean, square)}
    if len(shapes) > 1 or any(each.count != 1 for each in numbers):
        return None
    rate, scale, eps, share1, keep2, share2, shrink, decay = numbers
    return Launch(
        adam_stepped,
        step.parts(-(-value.count // STRIP), COST * value.count),
        value=value,
        grad=grad,
        mean=mean,
        square=square,
        rate=rate,
        scale=scale,
        eps=eps,
        share1=share1,
        keep2=keep2,
        share2=share2,
        shrink=shrink,
        decay=decay,
        values=step.output(0),
        means=step.output(1),
        squares=step.output(2),
        count=value.count,
    )
