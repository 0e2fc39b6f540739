"""Native Gelu, BiasGelu, FastGelu and QuickGelu of onnxruntime."""

from __future__ import annotations

import math

from ....runtime.plan.elementwise_fusion import FUNCTIONS
from ....runtime.plan.kernel_api import Apply, Chain, Planned, Step, native
from ...elementwise.elementwise_kernel import computed, floating, one_by_one, plan_gelu
from .gelu import bias_gelu, fast_gelu, gelu, quick_gelu

native(gelu)(plan_gelu)


def _quick_gelu(x: float, alpha: float) -> float:
    return x / (1 + math.exp(-alpha * x))


FUNCTIONS |= {"QuickGelu": _quick_gelu}


@native(bias_gelu, fast_gelu)
def plan_bias_gelu(step: Step) -> Planned:
    """Add the bias, then apply GELU."""
    x, key = step.inputs[0], "Gelu:none" if step.node.op is bias_gelu else "Gelu:tanh"
    bias = step.inputs[1] if len(step.inputs) > 1 else None
    output = step.output()
    if x is None or not floating(x.dtype) or output.shape != x.shape or (bias is not None and bias.dtype != x.dtype):
        return None
    if bias is None:
        return Chain((one_by_one(step, key, x),), output)
    total = Apply(".Add", (x, bias), (), computed(x.dtype), computed(x.dtype))
    return Chain((total, one_by_one(step, key, None)), output)


@native(quick_gelu)
def plan_quick_gelu(step: Step) -> Planned:
    """Compute x * sigmoid(alpha * x)."""
    x = step.inputs[0]
    if x is None or not floating(x.dtype):
        return None
    return Chain((one_by_one(step, "QuickGelu", x, numbers=(step.attributes["alpha"],)),), step.output())
