"""ConvInteger and QLinearConv: convolution of quantized tensors with int32 accumulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.tensor.dtype import F32, I32
from ..conv.conv import conv
from ..rules.decomposition import attributes_of, composed
from ..rules.expression import Term
from ..rules.sliding_window import window
from .exact_integer_matmul import F32_EXACT, centred, reach, same_dtypes
from .quantize_linear import coded, grid


def conv_shape(node: Inference, x: Shape | None, weight: Shape | None) -> Shape | None:
    """Output shape of a convolution with the attributes of Conv: [n, out, spatial...]."""
    if x is None or weight is None:
        return None
    attributes = node.attributes
    if len(x) < 3 or len(x) != len(weight):
        node.fail(f"the input has shape {x} and the kernel {weight}")
    if isinstance(x[1], int) and isinstance(weight[1], int) and x[1] != weight[1] * attributes["group"]:
        node.fail(f"{x[1]} channels do not match a kernel of shape {weight} in {attributes['group']} groups")
    lengths = attributes["kernel_shape"] or weight[2:]
    kernel = [length for length in lengths if isinstance(length, int)]
    spatial: Sequence[Dim] = [None] * (len(x) - 2)
    if len(kernel) == len(lengths):
        names = ("strides", "pads", "dilations", "auto_pad")
        spatial = window(node.node.op.name, len(x) - 2, kernel, *(attributes[name] for name in names)).lengths(x[2:])
    return (x[0], weight[0], *spatial)


def by_channel(value: np.ndarray | None, rank: int) -> np.ndarray | None:
    """A scale or zero point of the kernel: a scalar, or one for each output channel."""
    return value if value is None or value.size == 1 else value.reshape(-1, *(1,) * (rank - 1))


def _sums(node: Inference) -> None:
    same_dtypes(node, (0, 2), (1, 3))
    node.set(0, I32, conv_shape(node, node.shape(0), node.shape(1)))


@op(
    "ConvInteger",
    since=10,
    types="T=byte U=byte T U",
    infer=_sums,
    examples=[
        case("u8[1,2,5,4]", "u8[3,2,2,3]", np.uint8(7), np.uint8(12)),
        case("u8[2,4,6,5]", "i8[4,2,3,2]", group=2, strides=[2, 1], dilations=[1, 2]),
        case("u8[1,1,3,3]", "u8[1,1,2,2]", np.uint8(1), pads=[1, 0, 1, 2]),
        case("u8[2,3,9]", "u8[2,3,4]", auto_pad="SAME_LOWER", kernel_shape=[4]),
    ],
)
@attributes_of(conv)
def conv_integer(
    x: np.ndarray,
    w: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    w_zero_point: np.ndarray | None = None,
    **geometry: Any,
) -> np.ndarray:
    """Convolution of ``x - x_zero_point`` and ``w - w_zero_point`` as i32; padding is the zero point of `x`."""
    assert conv.compute is not None
    left = centred(x, None if x_zero_point is None else x_zero_point.reshape(()))
    right = centred(w, by_channel(w_zero_point, w.ndim))
    exact = np.float32 if math.prod(w.shape[1:]) * reach(left, right) <= F32_EXACT else np.float64
    y: np.ndarray = conv.compute(left.astype(exact, copy=False), right.astype(exact, copy=False), **geometry)
    return y.astype(np.int64).astype(np.int32)


def _quantized(node: Inference) -> None:
    same_dtypes(node, (0, 2), (3, 5))
    node.set(0, node.dtype(7), conv_shape(node, node.shape(0), node.shape(3)))


@composed(
    "QLinearConv",
    since=10,
    types="T=byte f32 T U=byte f32 U f32 byte i32",
    infer=_quantized,
    in_f32=False,
    examples=[
        case(
            *coded("u8[2,3,7,5]", 0.04, 20),
            *coded("i8[4,3,3,2]", [0.01, 0.03, 0.002, 0.05], [0] * 4),
            *grid("u8", 0.2, 90),
            np.array([5, -300, 1000, 7], np.int32),
            pads=[1, 0, 2, 1],
            strides=[2, 1],
        ),
        case(*coded("u8[1,4,6,5]", 0.04, 3), *coded("u8[2,2,3,3]", 0.02, 30), *grid("u8", 0.08, 111), group=2),
        case(
            *coded("i8[1,2,9]", 0.3, -3),
            *coded("i8[3,2,4]", 0.02, 0),
            *grid("i8", 0.3, 4),
            dilations=[2],
            auto_pad="SAME_UPPER",
        ),
    ],
)
@attributes_of(conv)
def qlinear_conv(
    x: Term,
    x_scale: Term,
    x_zero_point: Term,
    w: Term,
    w_scale: Term,
    w_zero_point: Term,
    y_scale: Term,
    y_zero_point: Term,
    b: Term | None = None,
    **geometry: Any,
) -> Term:
    """Convolution of the real values, quantized; the bias counts in steps of ``x_scale * w_scale``."""
    sums = x.call("ConvInteger", w, x_zero_point, w_zero_point, **geometry)
    behind = [1] * (w.axes - 2)
    multiplier = (x_scale * w_scale / y_scale).cast(F32)
    if math.prod(w_scale.lengths) > 1:
        multiplier = multiplier.reshaped(-1, *behind)
    real = (sums if b is None else sums + b.reshaped(-1, *behind)).cast(F32) * multiplier
    return real.call("QuantizeLinear", real.constant(1, "float32"), y_zero_point)
