"""Mean, BitCast and Det on the device."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.each import each
from ...runtime.cuda.element import computing
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.cuda.zip import Chain, applied, identical, mapped
from ...runtime.launch import View
from .cast import bit_cast
from .det import det
from .variadic import mean

ELIMINATION = """
    start = i * size * size
    found = 1.0
    for column in range(size):
        pivot = column
        for row in range(column + 1, size):
            if abs(a[start + row * size + column]) > abs(a[start + pivot * size + column]):
                pivot = row
        if pivot != column:
            found = -found
            for k in range(size):
                held = a[start + column * size + k]
                a[start + column * size + k] = a[start + pivot * size + k]
                a[start + pivot * size + k] = held
        first = a[start + column * size + column]
        found = found * first
        if first == 0.0:
            break
        for row in range(column + 1, size):
            factor = a[start + row * size + column] / first
            for k in range(column, size):
                a[start + row * size + k] -= factor * a[start + column * size + k]
    put_y(y, i, found)
"""


def _sum(a: float, b: float) -> float:
    return a + b


def _over(x: float, count: float) -> float:
    return x / count


@cuda(mean)
def mean_on_device(step: Step) -> Planned:
    """Sums, then a division."""
    inputs = [step.input(index) for index in range(len(step.inputs))]
    kind, y = computing(inputs[0].dtype), step.output()
    if len(inputs) == 1:
        return View(inputs[0])
    steps = [applied(_sum, inputs[:2], kind, compute=kind)]
    steps += [applied(_sum, (None, item), kind, compute=kind) for item in inputs[2:]]
    return Chain((*steps, applied(_over, (None,), y.dtype, len(inputs), compute=kind)), y)


@cuda(bit_cast)
def bit_cast_on_device(step: Step) -> Planned:
    """The same bytes."""
    result = step.results[0]
    assert result is not None
    x = step.input(0)
    return View(x.view(x.shape, 0, np.dtype(result[0])))


@cuda(det)
def det_on_device(step: Step) -> Planned:
    """Elimination with the largest pivots, in f64, one matrix a thread."""
    x, y = step.input(0), step.output()
    wide = step.temporary(np.float64, x.shape)
    return [mapped(identical, [x], wide), each("determinants", y.count, {"a": wide, "y": y, "size": x.shape[-1]}, ELIMINATION)]
