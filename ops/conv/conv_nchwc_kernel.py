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
    """Plan constant kernels."""
    conv, scale, launches = problem(step), step.optional_input(3), []
    if conv is None or not conv.constant:
        return None
    if scale is not None:
        if not conv.blocks_in or conv.groups > 1 or scale.shape != (conv.images, conv.channels, 1, 1):
            return None
        if not conv.pointwise or conv.positions < conv.outputs:
            x, launch = scaled_input(conv, scale)
            conv, scale, launches = replace(conv, x=x), None, [launch]
    if conv.groups > 1:
        way = plan_channels_vectorized(conv)
    else:
        unscaled = None if scale else plan_winograd(conv) or plan_banded_gemm(conv)
        way = unscaled or plan_implicit_gemm(conv, scale)
    if way is None:
        return None
    return [*launches, *way[0], launch_with_epilogue(way[1], step.output(), 0)]
