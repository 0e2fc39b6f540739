"""DynamicQuantizeMatMul, MatMulIntegerToFloat and QGemm: 8-bit integer products with float results."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case
from ....runtime.ir.registry import microsoft
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32
from ...linalg.matmul import product_shape
from ...quantized.quantize_linear import coded, grid
from ...rules.decomposition import composed
from ...rules.expression import Term

CLOSE = Tolerance(1e-4, 1e-4)


def product(a: Term, a_scale: Term, a_zero: Term | None, b: Term, b_scale: Term, b_zero: Term | None) -> Term:
    """The real product; scales broadcast to it."""
    sums = a.call("MatMulInteger", b, a_zero, b_zero)
    return sums.cast(F32) * (a_scale.cast(F32) * b_scale.cast(F32))


def _product(node: Inference) -> None:
    dtype = node.dtype(2) if node.node.op is microsoft.MatMulIntegerToFloat else F32
    node.set(0, dtype, product_shape(node, node.shape(0), node.shape(1)))


@composed(
    "DynamicQuantizeMatMul",
    MICROSOFT,
    types="f32 T=byte f32 T f32",
    infer=_product,
    tolerance=CLOSE,
    examples=[
        case("f32[2,3,5]", *coded("i8[5,4]", [0.1, 0.02, 0.3, 0.04], [0, 1, -2, 3]), "f32[4]"),
        case("f32[3,5]", *coded("u8[5,4]", 0.02, 20)),
    ],
)
def dynamic_quantize_matmul(
    a: Term, b: Term, b_scale: Term, b_zero_point: Term | None = None, bias: Term | None = None
) -> Term:
    """``a @ b + bias``; `a` is quantized to bytes as one."""
    codes, a_scale, a_zero = a.calls("DynamicQuantizeLinear", outputs=3)
    y = product(codes, a_scale, a_zero, b, b_scale, b_zero_point)
    return y if bias is None else y + bias


@composed(
    "MatMulIntegerToFloat",
    MICROSOFT,
    types="T=byte U=byte V=f16+f32 V T U V",
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
    a: Term,
    b: Term,
    a_scale: Term,
    b_scale: Term,
    a_zero_point: Term | None = None,
    b_zero_point: Term | None = None,
    bias: Term | None = None,
) -> Term:
    """``a_scale * (a - a_zero_point) @ b_scale * (b - b_zero_point) + bias``."""
    y = product(a, a_scale, a_zero_point, b, b_scale, b_zero_point)
    return (y if bias is None else y + bias.cast(F32)).cast(a_scale.dtype)


def _gemm(node: Inference) -> None:
    left, right = node.shape(0), node.shape(3)
    a = left[::-1] if left and node.attributes["transA"] else left
    b = right[::-1] if right and node.attributes["transB"] else right
    node.set(0, node.dtype(8) if node.value(8) is not None else F32, product_shape(node, a, b))


@composed(
    "QGemm",
    MICROSOFT,
    types="T=byte f32 T U=byte f32 U i32 f32 byte",
    infer=_gemm,
    tolerance=CLOSE,
    examples=[
        case(*coded("u8[2,5]", 0.1, 20), *coded("i8[5,4]", 0.05, 3), "i32[4]", *grid("u8", 0.3, 100), alpha=0.7),
        case(*coded("u8[5,2]", 0.1, 20), *coded("u8[4,5]", 0.05, 3), transA=1, transB=1),
    ],
)
def qgemm(
    a: Term,
    a_scale: Term,
    a_zero_point: Term,
    b: Term,
    b_scale: Term,
    b_zero_point: Term,
    c: Term | None = None,
    y_scale: Term | None = None,
    y_zero_point: Term | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Term:
    """``alpha * a @ b + c`` of the real values, quantized where there is a scale for it; `c` counts in steps of
    ``alpha * a_scale * b_scale``."""
    left, right = a.transposed([1, 0] if transA else [0, 1]), b.transposed([1, 0] if transB else [0, 1])
    sums = left.call("MatMulInteger", right, a_zero_point, b_zero_point)
    multiplier = a_scale * alpha * b_scale
    wide = (sums if c is None else sums + c).cast(F32)
    if y_scale is None or y_zero_point is None:
        return wide * multiplier
    return (wide * (multiplier / y_scale)).call("QuantizeLinear", y_scale.constant(1, "float32"), y_zero_point)
