"""Convolution of f16 and bf16 tensors."""

from __future__ import annotations

from ...runtime.plan.kernel_api import native
from ..kernels.half_via_f32 import via_f32
from .conv import conv
from .conv_kernel import plan_conv

native(conv)(via_f32(plan_conv))
