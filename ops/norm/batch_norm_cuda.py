"""BatchNormalization with given statistics on the device: a chain, which is fused with its neighbours."""

from __future__ import annotations

from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, plan_rows
from .batch_norm import batch_normalization, given, wide


@cuda(batch_normalization)
def batch_norm_on_device(step: Step) -> Planned:
    """Normalize; in training each channel is one row."""
    if step.attributes["training_mode"]:
        return plan_rows(step)
    x = step.input(0)
    along = (x.shape[1] if len(x.shape) > 1 else 1, *[1] * (len(x.shape) - 2))
    operands = [x, *(step.input(index).view(along) for index in range(1, 5))]
    compute = wide(x.dtype, step.input(3).dtype)
    return elementwise_chain(given, operands, step.output(), step.attributes["epsilon"], compute=compute)
