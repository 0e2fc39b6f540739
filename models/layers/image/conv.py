"""Convolutions, with the batch norms after them folded in, and batch norms that stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import FormatError
from ....runtime.contract.architecture import KEEP_NORMS
from ....runtime.ir.graph import Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..linear import linear
from .image_net import ImageNet
from .kernels import NORM_EPS, PARAMETERS, Kernel, affine, normed_kernel, plain_kernel

SAME = "same"
"""Padding as TensorFlow has it: the output is ceil(input / stride), the odd element of padding at the end."""
Padding = int | tuple[int, int] | str | None


def conv(
    net: ImageNet, x: Value, name: str, *, stride: int = 1, padding: Padding = None, groups: int = 1, dilation: int = 1
) -> Value:
    """Convolution with ``NAME.weight`` [out, in / groups, height, width] and, if the model has it, ``NAME.bias``.

    Args:
        padding: elements at each side, or before and after the image, `SAME`, or None for half the kernel, which
            keeps the size at stride 1.
        groups: of channels; 0 for as many as there are output channels (depthwise).
    """
    kernel = plain_kernel(net, name)
    return convolve(net, x, name, kernel, stride=stride, padding=padding, groups=groups, dilation=dilation)


def conv_norm(
    net: ImageNet,
    x: Value,
    conv: str,
    norm: str,
    *,
    stride: int = 1,
    padding: Padding = None,
    groups: int = 1,
    epsilon: float = NORM_EPS,
) -> Value:
    """Convolution followed by a batch norm, as one convolution unless norms are kept (see `batch_norm`)."""
    kept = net.config.values.get(KEEP_NORMS)
    kernel = plain_kernel(net, conv) if kept else normed_kernel(net, conv, norm, epsilon)
    y = convolve(net, x, conv, kernel, stride=stride, padding=padding, groups=groups)
    return batch_norm(net, y, norm, epsilon) if kept else y


def convolve(
    net: ImageNet,
    x: Value,
    name: str,
    kernel: Kernel,
    *,
    stride: int = 1,
    padding: Padding = None,
    groups: int = 1,
    dilation: int = 1,
) -> Value:
    """Convolution with a kernel, whose weights are called ``NAME.weight`` and ``NAME.bias`` in the graph."""
    height, width = kernel.weight.shape[2:]
    inputs: list[Any] = [x, net.named(f"{name}.weight", kernel.weight)]
    if kernel.bias is not None:
        inputs.append(net.named(f"{name}.bias", kernel.bias))
    y: Value = net.Conv(
        *inputs,
        strides=[stride, stride],
        dilations=[dilation, dilation],
        group=groups or kernel.weight.shape[0],
        **_padding(padding, (height, width), stride),
    )
    return y


def pointwise(net: ImageNet, x: Value, name: str) -> Value:
    """A linear layer on the last axis, whose weight may be that of a convolution of 1 x 1."""
    weight = net.tensor(f"{name}.weight")
    if len(weight.shape) == 2:
        return linear(net, x, name)
    if weight.shape[2:] != (1, 1):
        why = f"{name}.weight of the shape {list(weight.shape)} is not that of a linear layer"
        raise FormatError("E-ARCH-SHAPE", None, why, expected="[out, in] or [out, in, 1, 1]")
    matrix = net.named(f"{name}.weight", StoredTensor(weight.dtype, weight.shape[:2], weight.storage).cast("f32"))
    y: Value = net.MatMul(x, net.Transpose(matrix, perm=[1, 0]))
    return net.Add(y, net.vector(f"{name}.bias")) if net.has(f"{name}.bias") else y


def transposed_conv(net: ImageNet, x: Value, name: str) -> Value:
    """Transposed convolution whose stride is its kernel's size: every pixel becomes a square."""
    stride = net.kernel(f"{name}.weight").shape[-1]
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y: Value = net.ConvTranspose(x, net.vector(f"{name}.weight"), bias, strides=[stride, stride])
    return y


def _padding(padding: Padding, kernel: Sequence[int], stride: int) -> dict[str, Any]:
    if padding == SAME and stride > 1:
        return {"auto_pad": "SAME_UPPER"}
    if isinstance(padding, tuple):
        before, behind = padding
        return {"pads": [before, before, behind, behind]}
    sides = [padding if isinstance(padding, int) else (size - 1) // 2 for size in kernel]
    return {"pads": [*sides, *sides]}


def batch_norm(net: ImageNet, x: Value, name: str, epsilon: float = NORM_EPS) -> Value:
    """A batch norm, as a product and a sum per channel, or as the operator in a network that keeps norms."""
    channels = net.channels(name)
    if net.config.values.get(KEEP_NORMS):
        parameters = (net.vector(f"{name}.{part}") for part in PARAMETERS)
        kept: Value = net.BatchNormalization(x, *parameters, epsilon=epsilon)
        return kept
    factor, shift = (
        net.named(f"{name}.{part}", values.astype("float32").reshape(1, -1, 1, 1))
        for part, values in zip(("factor", "shift"), affine(net, name, channels, epsilon), strict=True)
    )
    y: Value = net.Add(net.Mul(x, factor), shift)
    return y
