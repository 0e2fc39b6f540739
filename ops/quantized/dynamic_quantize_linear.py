"""DynamicQuantizeLinear: 8-bit quantization whose scale and zero point are computed from the tensor."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, U8
from .quantize_linear import quantized


def _infer(node: Inference) -> None:
    node.set(0, U8, node.shape(0))
    node.set(1, F32, ())
    node.set(2, U8, ())


@op(
    "DynamicQuantizeLinear",
    since=11,
    types="f32 -> 3",
    traits=(Trait.KEEPS_F32,),
    infer=_infer,
    examples=[
        case("f32[2,3,4]", outputs=3),
        case(np.array([1, 2.1, 1.3, 2.5], np.float32), outputs=3),
        case(np.array([-3, -1.5], np.float32), outputs=3),
        case(np.zeros(3, np.float32), outputs=3),
    ],
)
def dynamic_quantize_linear(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, scale and zero point, such that [min(x, 0), max(x, 0)] becomes [0, 255]. Zeros alone have scale 1."""
    low, high = np.min(x, initial=np.float32(0)), np.max(x, initial=np.float32(0))
    with np.errstate(all="ignore"):
        scale = np.float32((high - low) / np.float32(255)) if high != low else np.float32(1)
        zero = quantized(np.asarray(-low / scale, np.float32), None, U8)
        return quantized(x / scale, zero, U8), np.asarray(scale), zero
