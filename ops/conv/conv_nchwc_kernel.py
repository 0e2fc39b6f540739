"""Native convolution in NCHW16c layout, by Winograd, implicit GEMM or vectors of 16 channels."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.plan.kernel_api import Planned, Step, native
from ..kernels.conv.banded_gemm import plan_banded_gemm
from ..kernels.conv.channel_scale import scaled_input
from ..kernels.conv.channels_vectorized import plan_channels_vectorized
from ..kernels.conv.implicit_gemm import plan_implicit_gemm
from ..kernels.conv.problem import problem
from ..kernels.conv.winograd.winograd import plan_winograd
from ..kernels.gemm.epilogue import launch_with_epilogue
from .conv_nchwc import blocked_conv


@native(blocked_conv)
def plan_blocked_conv(step: Step) -> Planned:
    """Of constant kernels."""
    found, scale, before = problem(step), step.optional_input(3), []
    if found is None or not found.constant:
        return None
    if scale is not None:
        if not found.blocks_in or found.groups > 1 or scale.shape != (found.images, found.channels, 1, 1):
            return None
        if not found.pointwise or found.positions < found.outputs:
            x, launch = scaled_input(found, scale)
            found, scale, before = replace(found, x=x), None, [launch]
    if found.groups > 1:
        way = plan_channels_vectorized(found)
    else:
        unscaled = None if scale else plan_winograd(found) or plan_banded_gemm(found)
        way = unscaled or plan_implicit_gemm(found, scale)
    if way is None:
        return None
    return [*before, *way[0], launch_with_epilogue(way[1], step.output(), 0)]
