"""Native MatMulIntegerToFloat, DynamicQuantizeMatMul and QGemm with constant right factors."""

from __future__ import annotations

import numpy as np

from ....runtime.plan.kernel_api import Planned, Step, native
from ...kernels.gemm.requantize import FLOATS
from ...quantized.matmul_integer_kernel import F32, Factors, form_of, padded_inputs, product
from ...quantized.quantize_linear_kernel import dynamically
from .dynamic_matmul import dynamic_quantize_matmul, matmul_integer_to_float, qgemm


@native(matmul_integer_to_float)
def plan_matmul_integer_to_float(step: Step) -> Planned:
    """Plan constant weights and biases with f32 results."""
    a, _, a_scale, _, a_zero, _, bias = padded_inputs(step, 7)
    reals = step.constant(6)
    if (
        a is None
        or a_scale is None
        or a_scale.dtype != F32
        or (bias is not None and (reals is None or reals.dtype != F32))
    ):
        return None
    return product(step, step.output(), Factors(a, a_zero, 1, 5, FLOATS, a_scale, 3, float_bias=reals))


@native(dynamic_quantize_matmul)
def plan_dynamic_quantize_matmul(step: Step) -> Planned:
    """Plan constant weights and biases."""
    a, _, _, _, bias = padded_inputs(step, 5)
    reals = step.constant(4)
    if a is None or a.dtype != F32 or (bias is not None and reals is None):
        return None
    before, codes, scale, zero = dynamically(step, a)
    launches = product(step, step.output(), Factors(codes, zero, 1, 3, FLOATS, scale, 2, float_bias=reals))
    return None if launches is None else [*before, *launches]


@native(qgemm)
def plan_qgemm(step: Step) -> Planned:
    """Plan constant weights and per-column biases."""
    a, a_scale, a_zero, b, _, _, c, y_scale, y_zero = padded_inputs(step, 9)
    integers = step.constant(6)
    y = step.output()
    if (
        a is None
        or a_scale is None
        or b is None
        or step.attributes["transA"]
        or len(a.shape) != 2
        or (y_scale is None) != (y_zero is None)
    ):
        return None
    transposed = bool(step.attributes["transB"])
    columns = b.shape[0 if transposed else 1]
    if c is not None and (integers is None or integers.size not in (1, columns) or integers.dtype != np.int32):
        return None
    wide = None if integers is None else np.broadcast_to(integers.reshape(-1), (columns,))
    return product(
        step,
        y,
        Factors(
            a,
            a_zero,
            3,
            5,
            form_of(y.dtype),
            a_scale,
            4,
            transposed,
            wide,
            None,
            y_scale,
            y_zero,
            step.attributes["alpha"],
        ),
    )
