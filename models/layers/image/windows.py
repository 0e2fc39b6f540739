"""Attention in windows of an image, and biases by relative position (Swin; Liu et al. 2021, arXiv:2103.14030).

Images are [batch, height, width, channels] here, of any size.
"""

from __future__ import annotations

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Value
from .image_net import ImageNet

MAX_TOKENS = 1 << 12
"""Tokens of a window, of which each pair has an index in the graph."""
MASKED = -100.0
"""Added to the scores of tokens that a shifted window has from another part of the image."""


def relative_index(height: int, width: int) -> np.ndarray:
    """Row of the table of relative positions for each pair of tokens, int64 [height x width, height x width].

    FormatError for windows of more than `MAX_TOKENS`.
    """
    if height * width > MAX_TOKENS:
        raise FormatError("E-ARCH-SHAPE", None, f"windows of {height} x {width} tokens are larger than is supported")
    rows, columns = (axis.reshape(-1) for axis in np.mgrid[:height, :width])
    down, across = rows[:, None] - rows, columns[:, None] - columns
    index: np.ndarray = (down + height - 1) * (2 * width - 1) + across + width - 1
    return index


def relative_bias(net: ImageNet, table: str, index: np.ndarray) -> Value:
    """Biases [1, heads, length, length] from a table [positions, heads] and the row of each pair."""
    rows = net.Gather(net.vector(table), net.once(("index", index.tobytes()), lambda: net.constant(index)))
    bias: Value = net.Unsqueeze(net.Transpose(rows, perm=[2, 0, 1]), [0])
    return bias


def side(net: ImageNet, x: Value, axis: int) -> Value:
    """A length of an image, int64 [1]."""
    return net.once(("side", x.name, axis), lambda: net.Shape(x, start=axis, end=axis + 1))


def padded(net: ImageNet, x: Value, window: int) -> Value:
    """The image with zeros after it, so that windows fill it."""
    missing = [net.Mod(net.Sub([window], net.Mod(side(net, x, axis), [window])), [window]) for axis in (1, 2)]
    y: Value = net.Pad(x, net.Concat([0, 0, 0, 0, 0], *missing, [0], axis=0))
    return y


def cut(net: ImageNet, x: Value, like: Value) -> Value:
    """The image without what is beyond the size of `like`."""
    size = net.Concat(side(net, like, 1), side(net, like, 2), axis=0)
    y: Value = net.Slice(x, [0, 0], size, [1, 2])
    return y


def partitioned(net: ImageNet, x: Value, window: int, channels: int) -> Value:
    """Windows [batch x windows, window x window, channels] of an image that they fill."""
    grid = [net.Div(side(net, x, axis), [window]) for axis in (1, 2)]
    shape = net.Concat([-1], grid[0], [window], grid[1], [window, channels], axis=0)
    split = net.Transpose(net.Reshape(x, shape), perm=[0, 1, 3, 2, 4, 5])
    y: Value = net.Reshape(split, [-1, window * window, channels])
    return y


def joined(net: ImageNet, windows: Value, like: Value, window: int, channels: int) -> Value:
    """The image of windows, with the size of `like`. Inverse of `partitioned`."""
    grid = [net.Div(side(net, like, axis), [window]) for axis in (1, 2)]
    split = net.Reshape(windows, net.Concat([-1], *grid, [window, window, channels], axis=0))
    shape = net.Concat([-1], side(net, like, 1), side(net, like, 2), [channels], axis=0)
    y: Value = net.Reshape(net.Transpose(split, perm=[0, 1, 3, 2, 4, 5]), shape)
    return y


def rolled(net: ImageNet, x: Value, shifts: list[Value], *, back: bool = False) -> Value:
    """The image moved up and left by `shifts` (int64 [1] each), around its edges; moved `back` for the inverse."""
    for axis, shift in zip((1, 2), shifts, strict=True):
        start = net.Sub(side(net, x, axis), shift) if back else shift
        first, second = (net.Slice(x, start, [np.iinfo(np.int64).max], [axis]), net.Slice(x, [0], start, [axis]))
        x = net.Concat(first, second, axis=axis)
    return x


def shift_mask(net: ImageNet, x: Value, window: int, shifts: list[Value]) -> Value:
    """The additive mask of the windows of a shifted image, [windows, 1, length, length]: tokens see those of their own
    part of the image only."""
    regions = []
    for axis, shift in zip((1, 2), shifts, strict=True):
        length = side(net, x, axis)
        places = net.Range(0, net.Squeeze(length, [0]), 1)
        edges = (net.Sub(length, [window]), net.Sub(length, shift))
        beyond = [net.Cast(net.Not(net.Less(places, edge)), to=7) for edge in edges]
        regions.append(net.Add(*beyond))
    rows, columns = regions
    region = net.Add(net.Unsqueeze(net.Mul(rows, [3]), [1]), columns)
    windows = net.Squeeze(partitioned(net, net.Unsqueeze(region, [0, 3]), window, 1), [2])
    same = net.Equal(net.Unsqueeze(windows, [2]), net.Unsqueeze(windows, [1]))
    mask: Value = net.Unsqueeze(net.Where(same, 0.0, MASKED), [1])
    return mask
