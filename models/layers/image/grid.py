"""Vectors of the positions of pixels or patches, made of one for the row and one for the column, at any image size."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Value
from .image_net import ImageNet


def indices(net: ImageNet, length: Value) -> Value:
    """0, 1 ... up to `length`, int64 [1]."""
    value: Value = net.Range(net.constant(np.array(0)), net.Squeeze(length, [0]), net.constant(np.array(1)))
    return value


def coordinates(net: ImageNet, size: Value, axis: int, offset: float) -> tuple[Value, Value]:
    """The index of each row (`axis` 0) or column (1) plus an offset, f32 [count], and the count, f32 [1]; `size` is
    height and width, int64 [2]."""
    length = net.Slice(size, [axis], [axis + 1], [0])
    return net.Add(net.Cast(indices(net, length), to=1), offset), net.Cast(length, to=1)


def places(net: ImageNet, size: Value, offset: float) -> Value:
    """Column and row of each pixel, plus an offset, f32 [height x width, 2]; `size` is height and width, int64 [2]."""
    rows, columns = (net.Unsqueeze(coordinates(net, size, axis, offset)[0], [1]) for axis in (0, 1))
    return side_by_side(net, size, net.Unsqueeze(columns, [0]), net.Unsqueeze(rows, [1]), 1)


def side_by_side(net: ImageNet, size: Value, first: Value, second: Value, width: int) -> Value:
    """Vectors [height, 1, width] or [1, width of the image, width] next to others, [height x width of the image,
    2 x width]."""
    whole = net.Concat(size, [width], axis=0)
    both = net.Concat(net.Expand(first, whole), net.Expand(second, whole), axis=2)
    value: Value = net.Reshape(both, [-1, 2 * width])
    return value
