"""ConvWeightGrad: the gradient of a convolution by its kernel, for images and gradients of known lengths."""

from __future__ import annotations

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term


def _infer(node: Inference) -> None:
    x, grad = node.shape(0), node.shape(1)
    if x is not None and grad is not None and (len(x) != len(grad) or len(x) < 3):
        node.fail(f"the input has shape {x} and the gradient {grad}")
    kernel = node.attributes["kernel_shape"]
    outputs, channels = (None if shape is None else shape[1] for shape in (grad, x))
    node.set(0, node.dtype(0), (outputs, channels, *kernel))


@composed(
    "ConvWeightGrad",
    CANDLE,
    types="T=float T -> 1",
    infer=_infer,
    examples=[
        case("f32[2,3,7,5]", "f32[2,4,7,5]", kernel_shape=[3, 3], begin=[1, 1]),
        case("f32[2,3,8,9]", "f32[2,4,3,4]", kernel_shape=[3, 2], begin=[0, 1], strides=[2, 2], dilations=[1, 2]),
        case("f32[3,2,9]", "f32[3,5,7]", kernel_shape=[3]),
    ],
)
def conv_weight_grad(
    x: Term,
    grad: Term,
    *,
    kernel_shape: list[int],
    begin: list[int] | None = None,
    dilations: list[int] | None = None,
    strides: list[int] | None = None,
) -> Term:
    """The gradient [out, channels, taps...] by the kernel of a convolution of x [n, channels, spatial...] whose result
    has the gradient [n, out, positions...]: the padded image convolved with the gradient, strides and dilations
    exchanged.

    Args:
        begin: zeros before the image along each spatial axis.
    """
    axes = x.axes - 2
    ones = [1] * axes
    before, steps, wide = begin or [0] * axes, strides or ones, dilations or ones
    spans = [
        (taps - 1) * dilation + (out - 1) * stride + 1
        for taps, dilation, out, stride in zip(kernel_shape, wide, grad.lengths[2:], steps, strict=True)
    ]
    behind = [span - size - pad for span, size, pad in zip(spans, x.lengths[2:], before, strict=True)]
    swap = [1, 0, *range(2, axes + 2)]
    image = x.call("Pad", x.integers([0, 0, *before, 0, 0, *behind])).transposed(swap)
    return image.call("Conv", grad.transposed(swap), strides=wide, dilations=steps).transposed(swap)
