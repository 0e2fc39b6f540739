"""onnxruntime's QuantizeLinear and DequantizeLinear of 4 and 16 bits, older than the standard's."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import case
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import U8
from ...rules.decomposition import composed
from ...rules.expression import Term


def _quantized(node: Inference) -> None:
    node.set(0, U8 if node.value(2) is None else node.dtype(2), node.shape(0))


def _real(node: Inference) -> None:
    node.set(0, node.dtype(1), node.shape(0))


@composed(
    "QuantizeLinear",
    MICROSOFT,
    types="T=f16+f32 T byte+nibble+short",
    infer=_quantized,
    in_f32=False,
    examples=[
        case("f32[2,3]", np.float32(0.001), np.uint16(30000)),
        case("f32[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.int8), axis=0),
    ],
)
def quantize_linear(x: Term, y_scale: Term, y_zero_point: Term | None = None, *, axis: int | None = None) -> Term:
    """The standard's; per tensor without an axis."""
    return x.call("QuantizeLinear", y_scale, y_zero_point, axis=1 if axis is None else axis)


@composed(
    "DequantizeLinear",
    MICROSOFT,
    types="T=byte+nibble+short+i32 f16+f32 T",
    infer=_real,
    in_f32=False,
    examples=[
        case("i16[2,3]", np.float32(0.001), np.int16(-300)),
        case("u8[2,3]", np.array([0.1, 0.2], np.float32), np.array([1, 2], np.uint8), axis=0),
    ],
)
def dequantize_linear(x: Term, x_scale: Term, x_zero_point: Term | None = None, *, axis: int | None = None) -> Term:
    """The standard's; per tensor without an axis."""
    return x.call("DequantizeLinear", x_scale, x_zero_point, axis=1 if axis is None else axis)
