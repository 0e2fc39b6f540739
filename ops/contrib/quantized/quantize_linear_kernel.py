"""Native QuantizeLinear and DequantizeLinear of onnxruntime: the standard's kernels."""

from __future__ import annotations

from ....runtime.plan.kernel_api import native
from ...quantized.quantize_linear_kernel import plan_dequantize, plan_quantize
from .quantize_linear import dequantize_linear, quantize_linear

native(quantize_linear)(plan_quantize)
native(dequantize_linear)(plan_dequantize)
