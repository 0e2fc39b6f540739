"""Mean on the device: a sum, then a division."""

from __future__ import annotations

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import chain_step
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Chain, View
from .variadic import mean


def _sum(a: float, b: float) -> float:
    return a + b


def _over(x: float, count: float) -> float:
    return x / count


@cuda(mean)
def mean_on_device(step: Step) -> Planned:
    """Sum the inputs, then divide."""
    inputs = [step.input(index) for index in range(len(step.inputs))]
    kind, y = compute_dtype(inputs[0].dtype), step.output()
    if len(inputs) == 1:
        return View(inputs[0])
    steps = [chain_step(_sum, inputs[:2], kind, compute=kind)]
    steps += [chain_step(_sum, (None, item), kind, compute=kind) for item in inputs[2:]]
    return Chain((*steps, chain_step(_over, (None,), y.dtype, len(inputs), compute=kind)), y)
