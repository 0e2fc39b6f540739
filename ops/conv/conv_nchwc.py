"""Convolution whose input, output or both are in NCHW16c layout, [n, channels / 16, height, width, 16].

It has one group, or one for each channel (depthwise). Its input may be scaled by a factor for each channel of an image,
as squeeze-and-excitation does.
"""

from __future__ import annotations

import numpy as np

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.shape_rules import shape_error
from ..rules.sliding_window import window
from .conv import conv

BLOCK = 16
"""Channels of a block."""


def _infer(node: Inference) -> None:
    x, weight = node.shape(0), node.shape(1)
    if x is None or weight is None:
        node.set(0, node.dtype(0), None)
        return
    blocks_in, blocks_out = node.attributes["blocks_in"], node.attributes["blocks_out"]
    if len(x) != 4 + blocks_in or len(weight) != 4:
        node.fail(f"the input has shape {x} and the kernel {weight}")
    kernel, outputs = [length for length in weight[2:] if isinstance(length, int)], weight[0]
    names = ("strides", "pads", "dilations", "auto_pad")
    sizes = (
        window("BlockedConv", 2, kernel, *(node.attributes[name] for name in names)).lengths(x[2:4])
        if len(kernel) == 2
        else (None, None)
    )
    whole = (outputs // BLOCK, *sizes, BLOCK) if blocks_out and isinstance(outputs, int) else (outputs, *sizes)
    node.set(0, node.dtype(0), (x[0], *whole))


def in_blocks(x: np.ndarray) -> np.ndarray:
    """[n, channels, height, width] as [n, channels / 16, height, width, 16]."""
    return x.reshape(len(x), x.shape[1] // BLOCK, BLOCK, *x.shape[2:]).transpose(0, 1, 3, 4, 2)


def from_blocks(x: np.ndarray) -> np.ndarray:
    """The reverse of `in_blocks`."""
    return x.transpose(0, 1, 4, 2, 3).reshape(len(x), x.shape[1] * BLOCK, *x.shape[2:4])


@op(
    "BlockedConv",
    domain=CANDLE,
    infer=_infer,
    examples=[
        case("f32[1,16,7,9]", "f32[32,16,3,3]", "f32[32]", pads=[1, 1, 1, 1], blocks_out=1),
        case("f32[2,2,5,6,16]", "f32[48,32,1,1]", "f32[48]", blocks_in=1, blocks_out=1),
        case("f32[1,1,8,7,16]", "f32[20,16,3,2]", strides=[2, 1], pads=[0, 1, 1, 0], blocks_in=1),
        case("f32[2,2,5,6,16]", "f32[32,1,3,3]", "f32[32]", group=32, pads=[1, 1, 1, 1], blocks_in=1, blocks_out=1),
        case("f32[2,2,5,6,16]", "f32[48,32,1,1]", "f32[48]", "f32[2,32,1,1]", blocks_in=1, blocks_out=1),
    ],
)
@quiet
def blocked_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    scale: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    blocks_in: int = 0,
    blocks_out: int = 0,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """From [n, channels, height, width], or that in blocks, and kernels [out, channels, taps, taps] to the same of the
    outputs. `scale` [n, channels, 1, 1] multiplies the input."""
    if x.ndim != 4 + blocks_in or (blocks_out and len(w) % BLOCK):
        raise shape_error("BlockedConv", f"an input of shape {x.shape} and a kernel of shape {w.shape} do not match")
    assert conv.compute is not None
    plain = from_blocks(x) if blocks_in else x
    geometry = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    y: np.ndarray = conv.compute(
        plain if scale is None else plain * scale, w, b, auto_pad=auto_pad, group=group, **geometry
    )
    return np.ascontiguousarray(in_blocks(y)) if blocks_out else y
