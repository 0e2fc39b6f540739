"""Pooling of images."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from .image_net import ImageNet


def max_pool(net: ImageNet, x: Value, size: int = 3, stride: int = 2, padding: int = 1) -> Value:
    """The largest element of each window."""
    y: Value = net.MaxPool(x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[padding] * 4)
    return y


def average_pool(net: ImageNet, x: Value, size: int = 2, stride: int = 2, *, whole: bool = True) -> Value:
    """The mean of each window; `whole` is whether windows that exceed the image are included, without what is outside
    it."""
    y: Value = net.AveragePool(x, kernel_shape=[size] * 2, strides=[stride] * 2, ceil_mode=int(whole))
    return y


def global_pool(net: ImageNet, x: Value) -> Value:
    """The mean of each channel, [batch, channels]."""
    y: Value = net.Flatten(net.GlobalAveragePool(x), axis=1)
    return y


def adaptive_pool(net: ImageNet, x: Value, size: int, *, larger: bool = False) -> Value:
    """Means of windows that divide an image into `size` x `size`; sides that are longer stay if `larger`. Windows are
    torch's: from ``floor(i n / size)`` to ``ceil((i + 1) n / size)``."""
    rows, columns = (_window_means(net, net.Shape(x, start=axis, end=axis + 1), size, larger) for axis in (2, 3))
    y: Value = net.MatMul(net.MatMul(rows, x), net.Transpose(columns, perm=[1, 0]))
    return y


def _window_means(net: ImageNet, length: Value, size: int, larger: bool) -> Value:
    """A matrix [windows, length] that averages."""
    count = net.Max(length, [size]) if larger else net.constant([size])
    windows, places = (net.Range(0, net.Squeeze(item, [0]), 1) for item in (count, length))
    first = net.Div(net.Mul(windows, length), count)
    last = net.Div(net.Sub(net.Add(net.Mul(net.Add(windows, [1]), length), count), [1]), count)
    first, last = (net.Unsqueeze(item, [1]) for item in (first, last))
    inside = net.And(net.Not(net.Less(places, first)), net.Less(places, last))
    means: Value = net.Div(net.Cast(inside, to=1), net.Cast(net.Sub(last, first), to=1))
    return means


def squeeze_excite(
    net: ImageNet, x: Value, reduce: str, expand: str, act: str = "relu", gate: str = "sigmoid"
) -> Value:
    """Channels weighted by a network of two layers on their means (Hu et al. 2017, arXiv:1709.01507)."""
    from .conv import conv

    means = net.GlobalAveragePool(x)
    y: Value = net.Mul(x, net.activate(conv(net, net.activate(conv(net, means, reduce), act), expand), gate))
    return y
