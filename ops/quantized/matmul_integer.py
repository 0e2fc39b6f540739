"""MatMulInteger and QLinearMatMul: products of quantized matrices with int32 accumulation."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, F64, I32
from ..linalg.matmul import product_shape
from ..rules.decomposition import composed
from ..rules.expression import Term
from .exact_integer_matmul import centred, exact_matmul, same_dtypes


def by_row(value: np.ndarray | None) -> np.ndarray | None:
    """A scale or zero point of the left factor: a scalar, one for each row, or (..., rows, 1)."""
    return value if value is None or value.ndim != 1 or value.size == 1 else value[:, None]


def _product_of_integers(node: Inference) -> None:
    same_dtypes(node, (0, 2), (1, 3))
    node.set(0, I32, product_shape(node, node.shape(0), node.shape(1)))


@op(
    "MatMulInteger",
    since=10,
    types="T=byte U=byte T U",
    infer=_product_of_integers,
    examples=[
        case("u8[2,3]", "i8[3,4]", np.uint8(12), np.int8(-3)),
        case("i8[2,1,3,5]", "u8[4,5,2]"),
        case("u8[2,3]", "u8[3,4]", np.array([7], np.uint8), np.array([1, 2, 3, 40], np.uint8)),
        case("u8[3,700]", "i8[700,2]", np.uint8(200)),
        case("u8[2,0]", "u8[0,3]"),
    ],
)
def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None, b_zero_point: np.ndarray | None = None
) -> np.ndarray:
    """``(a - a_zero_point) @ (b - b_zero_point)`` as i32."""
    return exact_matmul(centred(a, by_row(a_zero_point)), centred(b, b_zero_point))


def _quantized_product(node: Inference) -> None:
    same_dtypes(node, (0, 2), (3, 5))
    node.set(0, node.dtype(7), product_shape(node, node.shape(0), node.shape(3)))


@composed(
    "QLinearMatMul",
    since=21,
    types="T=f8+byte U=real T V=f8+byte U V U f8+byte",
    infer=_quantized_product,
    in_f32=False,
    examples=[
        case(
            "u8[2,4]",
            np.float32(0.0066),
            np.uint8(113),
            "u8[4,3]",
            np.float32(0.00705),
            np.uint8(114),
            np.float32(0.0007),
            np.uint8(118),
        ),
        case(
            "i8[2,3,70]",
            np.float32(0.06),
            np.int8(3),
            "i8[70,2]",
            np.array([0.07, 0.02], np.float32),
            np.array([4, -9], np.int8),
            np.float32(2),
            np.int8(-8),
        ),
        case(
            "u8[2,3]",
            np.array([[0.5], [0.25]], np.float32),
            np.array([[3], [9]], np.uint8),
            "i8[3,2]",
            np.float32(0.02),
            np.int8(0),
            np.array([[0.9], [0.6]], np.float32),
            np.array([[5], [1]], np.uint8),
        ),
        case("u8[0,3]", np.float32(1), np.uint8(0), "u8[3,2]", np.float32(1), np.uint8(0), np.float32(1), np.uint8(0)),
    ],
)
def qlinear_matmul(
    a: Term,
    a_scale: Term,
    a_zero_point: Term,
    b: Term,
    b_scale: Term,
    b_zero_point: Term,
    y_scale: Term,
    y_zero_point: Term,
) -> Term:
    """The product of the real values, quantized: scales and zero points are for all, for each row of `a` and `y`, or
    for each column of `b`."""

    def column(term: Term) -> Term:
        return term.unsqueezed(1) if term.rank == 1 and term.lengths != [1] else term

    if "float" in (a.dtype.kind, b.dtype.kind):
        left = a.cast(F32) - column(a_zero_point).cast(F32)
        sums = left.call("MatMul", b.cast(F32) - b_zero_point.cast(F32))
    else:
        sums = a.call("MatMulInteger", b, a_zero_point, b_zero_point)
    wide = F64 if a_scale.dtype.bits < 32 else F32
    y, zero = sums.cast(wide) * (column(a_scale) * b_scale / column(y_scale)).cast(wide), column(y_zero_point)
    if math.prod(zero.lengths) == 1:
        return y.call("QuantizeLinear", y.constant(1, wide.as_numpy()), zero)
    rows = [*y.lengths[:-1], 1]
    ones, zeros = y.constant(np.ones(rows), wide.as_numpy()), zero.call("Expand", y.integers(rows))
    return y.call("QuantizeLinear", ones, zeros, axis=-1, block_size=y.lengths[-1])
