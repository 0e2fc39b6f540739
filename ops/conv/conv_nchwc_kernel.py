"""Native convolution in NCHW16c layout, by Winograd or implicit GEMM; results need no transposition."""

from __future__ import annotations

from ...runtime.plan.kernel_api import Planned, Step, native
from ..kernels.conv.implicit_gemm import plan_implicit_gemm
from ..kernels.conv.problem import problem
from ..kernels.conv.winograd import plan_winograd
from ..kernels.gemm.epilogue import launch_with_epilogue
from .conv_nchwc import blocked_conv


@native(blocked_conv)
def plan_blocked_conv(step: Step) -> Planned:
    """Of constant kernels."""
    found = problem(step)
    way = (plan_winograd(found) or plan_implicit_gemm(found)) if found is not None and found.constant else None
    if way is None:
        return None
    before, last = way
    return [*before, launch_with_epilogue(last, step.output(), 0)]
