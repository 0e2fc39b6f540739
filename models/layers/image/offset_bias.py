"""Attention in windows with a bias for each distance of two tokens (LeViT; Graham et al. 2021, arXiv:2104.01136)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Value
from .image_net import ImageNet
from .windows import MAX_TOKENS, cut, joined, padded, partitioned


def offset_biases(net: ImageNet, name: str) -> Value:
    """Biases [1, heads, length, length] from the weight [heads, side x side], by the distances of rows and columns."""
    side = window_side(net, name)
    rows, columns = (axis.reshape(-1) for axis in np.mgrid[:side, :side])
    index = np.abs(rows[:, None] - rows) * side + np.abs(columns[:, None] - columns)
    found = net.Gather(net.vector(name), net.once(("offsets", side), lambda: net.constant(index)), axis=1)
    bias: Value = net.Unsqueeze(found, [0])
    return bias


def window_side(net: ImageNet, name: str) -> int:
    """The side of the windows whose distances have the biases `name`. FormatError if they are not square."""
    count = net.tensor(name).shape[1]
    side = math.isqrt(count)
    if side * side != count or count > MAX_TOKENS:
        raise FormatError("E-ARCH-SHAPE", None, f"{counted(count, 'biase')} of {name} are not those of a square window")
    return side


def in_windows(net: ImageNet, x: Value, side: int, channels: int, attention: Callable[[Value], Value]) -> Value:
    """An image [batch, height, width, channels] after attention of the tokens [windows, length, channels] of each
    window."""
    whole = padded(net, x, side)
    return cut(net, joined(net, attention(partitioned(net, whole, side, channels)), whole, side, channels), x)
