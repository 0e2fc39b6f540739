"""Convolutions along time, [batch, channels, samples], with ``NAME.weight`` and, if the model has it, ``NAME.bias``."""

from __future__ import annotations

from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..net import Net

Pads = tuple[int, int]
"""Samples before and after the others."""


def kernel(net: Net, name: str) -> StoredTensor:
    """The weight of a convolution, [out, in / groups, width] or, of a transposed one, [in, out / groups, width]."""
    tensor = net.tensor(f"{name}.weight")
    if len(tensor.shape) != 3:
        why = f"{name}.weight of the shape {list(tensor.shape)} is not the weight of a convolution along time"
        raise FormatError("E-ARCH-SHAPE", None, why, expected="3 dimensions")
    return tensor


def conv1d(
    net: Net, x: Value, name: str, *, stride: int = 1, dilation: int = 1, groups: int = 1, pads: Pads = (0, 0)
) -> Value:
    """Convolution with zeros before and after the samples, as many as `pads` says."""
    kernel(net, name)
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y: Value = net.Conv(
        x, net.vector(f"{name}.weight"), bias, strides=[stride], dilations=[dilation], group=groups, pads=list(pads)
    )
    return y


def transposed_conv1d(
    net: Net,
    x: Value,
    name: str,
    *,
    stride: int,
    groups: int = 1,
    pads: tuple[int, int] = (0, 0),
    output_padding: int = 0,
) -> Value:
    """Transposed convolution, whose first and last samples are left out as `pads` says."""
    kernel(net, name)
    bias = net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None
    y: Value = net.ConvTranspose(
        x,
        net.vector(f"{name}.weight"),
        bias,
        strides=[stride],
        group=groups,
        pads=list(pads),
        output_padding=[output_padding] if output_padding else None,
    )
    return y


def pointwise1d(net: Net, x: Value, name: str) -> Value:
    """A convolution of width 1 on [batch, samples, channels]."""
    weight = kernel(net, name)
    if weight.shape[2] != 1:
        why = f"{name}.weight of the shape {list(weight.shape)} is not that of a linear layer"
        raise FormatError("E-ARCH-SHAPE", None, why, expected="[out, in, 1]")
    matrix = net.named(f"{name}.weight", StoredTensor(weight.dtype, weight.shape[:2], weight.storage).cast("f32"))
    y: Value = net.MatMul(x, net.Transpose(matrix, perm=[1, 0]))
    return net.Add(y, net.vector(f"{name}.bias")) if net.has(f"{name}.bias") else y
