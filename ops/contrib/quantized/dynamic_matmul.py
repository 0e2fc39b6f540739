"""DynamicQuantizeMatMul, MatMulIntegerToFloat and QGemm: 8-bit integer products with float results."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32
from ...linalg.matmul import product_shape
from ...quantized.dynamic_quantize_linear import dynamic_quantize_linear
from ...quantized.exact_integer_matmul import centred, exact_matmul
from ...quantized.matmul_integer import requantized
from ...rules.contrib_domain import DOMAIN

CLOSE = Tolerance(1e-4, 1e-4)


def product(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: np.ndarray | None,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray | None,
) -> np.ndarray:
    """The real product; scales and zero points broadcast to it."""
    sums = exact_matmul(centred(a, a_zero), centred(b, b_zero))
    made: np.ndarray = sums.astype(np.float32) * (a_scale.astype(np.float32) * b_scale.astype(np.float32))
    return made


def dynamic_product(a: np.ndarray, b: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """The product of real values, quantized to bytes as one, and integers."""
    assert dynamic_quantize_linear.compute is not None
    codes, a_scale, a_zero = dynamic_quantize_linear.compute(a)
    return product(codes, a_scale, a_zero, b, scale, zero)


def _product(node: Inference) -> None:
    dtype = node.dtype(2) if node.node.op.name == "MatMulIntegerToFloat" else F32
    node.set(0, dtype, product_shape(node, node.shape(0), node.shape(1)))


@op(
    "DynamicQuantizeMatMul",
    DOMAIN,
    infer=_product,
    tolerance=CLOSE,
    examples=[
        case(
            "f32[2,3,5]",
            "i8[5,4]",
            np.array([0.1, 0.02, 0.3, 0.04], np.float32),
            np.array([0, 1, -2, 3], np.int8),
            "f32[4]",
        ),
        case("f32[3,5]", "u8[5,4]", np.float32(0.02), np.uint8(20)),
    ],
)
def dynamic_quantize_matmul(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """``a @ b + bias``; `a` is quantized to bytes as one."""
    y = dynamic_product(a, b, b_scale, b_zero_point)
    return y if bias is None else y + bias


@op(
    "MatMulIntegerToFloat",
    DOMAIN,
    infer=_product,
    tolerance=CLOSE,
    examples=[
        case(
            "u8[2,3,5]",
            "i8[5,4]",
            np.float32(0.1),
            np.array([0.1, 0.02, 0.3, 0.04], np.float32),
            np.uint8(20),
            np.array([0, 1, -2, 3], np.int8),
            "f32[4]",
        ),
        case("u8[3,5]", "u8[5,4]", np.float32(0.1), np.float32(0.02)),
    ],
)
def matmul_integer_to_float(
    a: np.ndarray,
    b: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero_point: np.ndarray | None = None,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """``a_scale * (a - a_zero_point) @ b_scale * (b - b_zero_point) + bias``."""
    y = product(a, a_scale, a_zero_point, b, b_scale, b_zero_point)
    return (y if bias is None else y + bias.astype(np.float32)).astype(a_scale.dtype, copy=False)


def _gemm(node: Inference) -> None:
    left, right = node.shape(0), node.shape(3)
    a = left[::-1] if left and node.attributes["transA"] else left
    b = right[::-1] if right and node.attributes["transB"] else right
    node.set(0, node.dtype(8) if node.value(8) is not None else F32, product_shape(node, a, b))


@op(
    "QGemm",
    DOMAIN,
    infer=_gemm,
    tolerance=CLOSE,
    examples=[
        case(
            "u8[2,5]",
            np.float32(0.1),
            np.uint8(20),
            "i8[5,4]",
            np.float32(0.05),
            np.int8(3),
            "i32[4]",
            np.float32(0.3),
            np.uint8(100),
            alpha=0.7,
        ),
        case("u8[5,2]", np.float32(0.1), np.uint8(20), "u8[4,5]", np.float32(0.05), np.uint8(3), transA=1, transB=1),
    ],
)
def qgemm(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    c: np.ndarray | None = None,
    y_scale: np.ndarray | None = None,
    y_zero_point: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> np.ndarray:
    """``alpha * a @ b + c`` of the real values, quantized where there is a scale for it; `c` counts in steps of
    ``alpha * a_scale * b_scale``."""
    left, right = centred(a, a_zero_point), centred(b.T if transB else b, b_zero_point)
    sums = exact_matmul(left.T if transA else left, right)
    if c is not None:
        sums = sums + c
    multiplier = np.float32(alpha) * a_scale * b_scale
    if y_scale is None or y_zero_point is None:
        return sums.astype(np.float32) * multiplier
    return requantized(sums, multiplier / y_scale, y_zero_point)
