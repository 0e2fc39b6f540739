"""Native AdamStep of f32: parameters and both means are read and written once."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.memory import (
    STREAM_ALIGNMENT,
    STREAMED,
    load_f32,
    load_masked,
    prefetch_read,
    prefetch_write,
    store_f32,
    store_masked,
    stream_f32,
)
from ...runtime.simd.vector import LANES, sqrt
from .adam_step import adam_step

STRIP = 1024
"""Elements of which a part has a multiple."""
AHEAD = 1024
"""Bytes by which memory is asked for before its use: there are more streams than the processor foresees, and results
would wait for theirs."""
COST = 8.0


@inner
def _stepped(value: Any, grad: Any, mean: Any, square: Any, numbers: Any) -> Any:
    """The next value, mean and square."""
    rate, inverse, eps, share1, keep2, share2, shrink, decay = numbers
    slope = grad + value * decay
    mean = mean + share1 * (slope - mean)
    square = square * keep2 + share2 * (slope * slope)
    return value * shrink - rate * (mean / (sqrt(square) * inverse + eps)), mean, square


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
    """A part of the elements, a vector at a time."""
    numbers = (
        f32(rate)[0], np.float32(1) / f32(scale)[0], f32(eps)[0], f32(share1)[0], f32(keep2)[0], f32(share2)[0],
        f32(shrink)[0], f32(decay)[0],
    )  # fmt: skip
    first, last = share((count + STRIP - 1) // STRIP, part, parts)
    streams = (
        4 * count >= STREAMED
        and values != value
        and values % STREAM_ALIGNMENT + means % STREAM_ALIGNMENT + squares % STREAM_ALIGNMENT == 0
    )
    begin, end = 4 * first * STRIP, 4 * min(last * STRIP, count)
    whole = end - (end - begin) % (4 * LANES)
    for at in range(begin, whole, 4 * LANES):
        for source in (value, grad, mean, square):
            prefetch_read(source + at + AHEAD)
        if not streams and values != value:
            for target in (values, means, squares):
                prefetch_write(target + at + AHEAD)
        found = _stepped(load_f32(value + at), load_f32(grad + at), load_f32(mean + at), load_f32(square + at), numbers)
        if streams:
            stream_f32(values + at, found[0])
            stream_f32(means + at, found[1])
            stream_f32(squares + at, found[2])
        else:
            store_f32(values + at, found[0])
            store_f32(means + at, found[1])
            store_f32(squares + at, found[2])
    if whole < end:
        lanes = (1 << ((end - whole) // 4)) - 1
        found = _stepped(
            load_masked(value + whole, lanes),
            load_masked(grad + whole, lanes),
            load_masked(mean + whole, lanes),
            load_masked(square + whole, lanes),
            numbers,
        )
        store_masked(values + whole, found[0], lanes)
        store_masked(means + whole, found[1], lanes)
        store_masked(squares + whole, found[2], lanes)


@native(adam_step)
def plan_adam_step(step: Step) -> Planned:
    """Plan one launch; NumPy computes f64, and shapes that broadcast."""
    if any(each is None or each.dtype != np.float32 for each in step.inputs):
        return None
    value, grad, mean, square, *numbers = (each for each in step.inputs if each is not None)
    shapes = {each.shape for each in (value, grad, mean, square)}
    if len(shapes) > 1 or any(each.count != 1 for each in numbers):
        return None
    rate, scale, eps, share1, keep2, share2, shrink, decay = numbers
    values, means, squares = map(step.output, range(3))
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
        values=values,
        means=means,
        squares=squares,
        count=value.count,
    ).changed(in_place=((value, values), (mean, means), (square, squares)))
