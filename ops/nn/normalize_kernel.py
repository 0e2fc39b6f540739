"""Native Softmax over the last axis, and BatchNormalization with constant statistics as a scale and a shift."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.fusion import Apply, Chain
from ...runtime.kernel import range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import f32, share
from ...runtime.scalar_math import exp
from .batch_norm import batch_normalization
from .softmax import softmax

F32 = np.dtype(np.float32)


@range_kernel(fastmath={"reassoc"})
def softmax_rows(args: Any, part: Any, parts: Any) -> None:
    """Rows that sum to one: x, y, rows, elements of a row."""
    x, y, rows, count = f32(args[0]), f32(args[1]), args[2], args[3]
    first, last = share(rows, part, parts)
    for row in range(first, last):
        base = row * count
        most = np.float32(-np.inf)
        for j in range(count):
            most = max(most, x[base + j])
        total = np.float32(0)
        for j in range(count):
            power = exp(x[base + j] - most)
            y[base + j] = power
            total += power
        for j in range(count):
            y[base + j] = y[base + j] / total


@native(softmax)
def plan_softmax(step: Step) -> Planned:
    """Other axes, unless all behind them are of length one, are left to NumPy."""
    x = step.inputs[0]
    if x is None or x.dtype != F32 or not x.shape:
        return None
    axis = step.attributes["axis"] % len(x.shape)
    if any(length != 1 for length in x.shape[axis + 1 :]):
        return None
    count = x.shape[axis]
    return Launch(softmax_rows, (x, step.output(), x.count // count, count), step.parts(x.count // count, x.count * 3.0))


@native(batch_normalization)
def plan_batch_normalization(step: Step) -> Planned:
    """y = x * scale + shift for each channel."""
    x = step.inputs[0]
    statistics = [step.constant(index) for index in range(1, 5)]
    if x is None or x.dtype != F32 or len(x.shape) < 2 or step.attributes["training_mode"] or any(item is None for item in statistics):
        return None
    scale, bias, mean, variance = (np.asarray(item, np.float64) for item in statistics)
    factor = scale / np.sqrt(variance + step.attributes["epsilon"])
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    rows = [step.held(item.astype(np.float32).reshape(shape)) for item in (factor, bias - mean * factor)]
    steps = (Apply(".Mul", (x, rows[0]), (), F32, F32), Apply(".Add", (None, rows[1]), (), F32, F32))
    return Chain(steps, step.output())
