"""Transposed convolution of f16 and bf16 tensors."""

from __future__ import annotations

from ...runtime.plan.kernel_api import native
from ..kernels.half_via_f32 import via_f32
from .conv_transpose import conv_transpose
from .conv_transpose_kernel import plan_conv_transpose

native(conv_transpose)(via_f32(plan_conv_transpose))
