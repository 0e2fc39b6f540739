"""onnxruntime's QuantizeLinear and DequantizeLinear of 4 and 16 bits, older than the standard's."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.op import case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import U8
from ...quantized.quantize_linear import dequantize_linear as standard_dequantize
from ...quantized.quantize_linear import quantize_linear as standard_quantize
from ...rules.contrib_domain import DOMAIN


def _quantized(node: Inference) -> None:
    node.set(0, U8 if node.value(2) is None else node.dtype(2), node.shape(0))


def _real(node: Inference) -> None:
    node.set(0, node.dtype(1), node.shape(0))


@op(
    "QuantizeLinear",
    DOMAIN,
    infer=_quantized,
    examples=[
        case("f32[2,3]", np.float32(0.001), np.uint16(30000)),
        case("f32[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.int8), axis=0),
    ],
)
def quantize_linear(
    x: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray | None = None, *, axis: int | None = None
) -> np.ndarray:
    """The standard's; per tensor without an axis."""
    assert standard_quantize.compute is not None
    made: np.ndarray = standard_quantize.compute(x, y_scale, y_zero_point, axis=1 if axis is None else axis)
    return made


@op(
    "DequantizeLinear",
    DOMAIN,
    infer=_real,
    examples=[
        case("i16[2,3]", np.float32(0.001), np.int16(-300)),
        case("u8[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.uint8), axis=0),
    ],
)
def dequantize_linear(
    x: np.ndarray, x_scale: np.ndarray, x_zero_point: np.ndarray | None = None, *, axis: int | None = None
) -> np.ndarray:
    """The standard's; per tensor without an axis."""
    assert standard_dequantize.compute is not None
    made: np.ndarray = standard_dequantize.compute(x, x_scale, x_zero_point, axis=1 if axis is None else axis)
    return made
