"""Snake (Ziyin et al. 2020, arXiv:2006.08195) and the residual unit of codecs that use it (DAC, SNAC)."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Value
from ...schema.computed_weights import computed, f32
from ..net import Net
from .conv1d import conv1d, kernel

EPSILON = 1e-9


def snake(net: Net, x: Value, name: str) -> Value:
    """x + sin(alpha x)^2 / alpha, with ``NAME.alpha`` [1, channels, 1]."""
    alpha = f32(net.tensor(f"{name}.alpha"))
    inverse = computed(alpha.shape, lambda: (1 / (alpha.numpy() + np.float32(EPSILON))).astype(np.float32))
    wave = net.Sin(net.Mul(net.vector(f"{name}.alpha"), x))
    y: Value = net.Add(x, net.Mul(net.named(f"{name}.inverse", inverse), net.Mul(wave, wave)))
    return y


def residual_unit(
    net: Net, x: Value, snakes: tuple[str, str], convs: tuple[str, str], dilation: int, groups: int = 1
) -> Value:
    """A dilated convolution and one of width 1, each after a snake, added to the input."""
    pad = (kernel(net, convs[0]).shape[2] - 1) * dilation // 2
    y = conv1d(net, snake(net, x, snakes[0]), convs[0], dilation=dilation, groups=groups, pads=(pad, pad))
    y = conv1d(net, snake(net, y, snakes[1]), convs[1])
    value: Value = net.Add(x, y)
    return value
