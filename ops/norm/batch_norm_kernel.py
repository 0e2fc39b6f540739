"""Native BatchNormalization with constant statistics: a scale and a shift."""

from __future__ import annotations

import numpy as np

from ...runtime.plan.kernel_api import Apply, Chain, Planned, Step, native
from .batch_norm import batch_normalization

F32 = np.dtype(np.float32)


@native(batch_normalization)
def plan_batch_normalization(step: Step) -> Planned:
    """Compute y = x * scale + shift per channel."""
    x = step.inputs[0]
    statistics = [step.constant(index) for index in range(1, 5)]
    if (
        x is None
        or x.dtype != F32
        or len(x.shape) < 2
        or step.attributes["training_mode"]
        or any(item is None for item in statistics)
    ):
        return None
    scale, bias, mean, variance = (np.asarray(item, np.float64) for item in statistics)
    factor = scale / np.sqrt(variance + step.attributes["epsilon"])
    shape = (x.shape[1], *(1,) * (len(x.shape) - 2))
    rows = [step.constant_buffer(item.astype(np.float32).reshape(shape)) for item in (factor, bias - mean * factor)]
    steps = (Apply(".Mul", (x, rows[0]), (), F32, F32), Apply(".Add", (None, rows[1]), (), F32, F32))
    return Chain(steps, step.output())
