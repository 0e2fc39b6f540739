"""Mean, BitCast and Range on the device."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.element import computing
from ...runtime.cuda.place import Planned, Step, cuda, on_cpu, within
from ...runtime.cuda.zip import Chain, applied
from ...runtime.launch import View
from . import det
from .cast import bit_cast
from .variadic import mean

on_cpu("no kernel has been written for it yet", *within(det))


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
