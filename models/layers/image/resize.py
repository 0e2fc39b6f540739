"""Images resized by interpolation, as torch has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.ir.graph import Value
from .image_net import ImageNet


def size_of(net: ImageNet, x: Value) -> Value:
    """Height and width of `x` [batch, channels, height, width], int64 [2]."""
    size: Value = net.once(("size", x.name), lambda: net.Shape(x, start=2, end=4))
    return size


def resize(net: ImageNet, x: Value, size: Value, **attributes: Any) -> Value:
    """`x` with another height and width, int64 [2]; `attributes` are those of Resize."""
    empty = net.constant(np.zeros(0, np.float32))
    sizes = net.Concat(net.Shape(x, start=0, end=2), size, axis=0)
    y: Value = net.Resize(x, empty, empty, sizes, **{"coordinate_transformation_mode": "half_pixel", **attributes})
    return y


def enlarged(net: ImageNet, x: Value, factor: int) -> Value:
    """Every pixel as a square of `factor` x `factor`."""
    scales = net.constant([1.0, 1.0, float(factor), float(factor)], "float32")
    mode = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    y: Value = net.Resize(x, None, scales, mode="nearest", **mode)
    return y


def nearest(net: ImageNet, x: Value, size: Value) -> Value:
    """`x` with another height and width, int64 [2], by repeating or dropping pixels."""
    mode = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(net, x, size, mode="nearest", **mode)


def bilinear(net: ImageNet, x: Value, size: Value, *, align_corners: bool = False) -> Value:
    """`x` with another height and width, int64 [2], by linear interpolation."""
    mode = "align_corners" if align_corners else "half_pixel"
    return resize(net, x, size, mode="linear", coordinate_transformation_mode=mode)


def bicubic(net: ImageNet, x: Value, size: Value, *, antialias: bool = False) -> Value:
    """`x` with another height and width, int64 [2], by bicubic interpolation; `antialias` is whether to average where
    it becomes smaller."""
    averaged = int(antialias)
    factor = -0.5 if antialias else -0.75
    return resize(net, x, size, mode="cubic", cubic_coeff_a=factor, antialias=averaged, exclude_outside=averaged)
