"""QuantizeLinear and DequantizeLinear as onnxruntime had them for 4 and 16 bits before the standard did."""

from __future__ import annotations

import numpy as np

from ...runtime.dtype import U8
from ...runtime.infer import Inference
from ...runtime.op import case, op
from ..quantized.linear import dequantize_linear as standard_dequantize
from ..quantized.linear import quantize_linear as standard_quantize
from .domain import DOMAIN


def _quantized(node: Inference) -> None:
    node.set(0, U8 if node.value(2) is None else node.dtype(2), node.shape(0))


def _real(node: Inference) -> None:
    node.set(0, node.dtype(1), node.shape(0))


@op(
    "QuantizeLinear", DOMAIN, infer=_quantized,
    examples=[
        case("f32[2,3]", np.float32(0.001), np.uint16(30000)),
        case("f32[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.int8), axis=0),
    ],
)
def quantize_linear(x: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray | None = None, *, axis: int | None = None) -> np.ndarray:
    """The standard's; one scale for all where there is no axis."""
    assert standard_quantize.compute is not None
    made: np.ndarray = standard_quantize.compute(x, y_scale, y_zero_point, axis=1 if axis is None else axis)
    return made


@op(
    "DequantizeLinear", DOMAIN, infer=_real,
    examples=[
        case("i16[2,3]", np.float32(0.001), np.int16(-300)),
        case("u8[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.uint8), axis=0),
    ],
)
def dequantize_linear(x: np.ndarray, x_scale: np.ndarray, x_zero_point: np.ndarray | None = None, *, axis: int | None = None) -> np.ndarray:
    """The standard's; one scale for all where there is no axis."""
    assert standard_dequantize.compute is not None
    made: np.ndarray = standard_dequantize.compute(x, x_scale, x_zero_point, axis=1 if axis is None else axis)
    return made
