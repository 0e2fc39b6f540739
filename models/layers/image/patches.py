"""Patches as tokens, and their position embeddings at any image size."""

from __future__ import annotations

import math

from ....runtime.ir.graph import Value
from .conv import conv
from .image_net import ImageNet
from .resize import bicubic, size_of


def patch_embedding(net: ImageNet, x: Value, name: str) -> Value:
    """A vector for each patch, [batch, channels, height / patch, width / patch]: a convolution whose stride is its
    kernel's size."""
    return conv(net, x, name, stride=net.kernel(f"{name}.weight").shape[-1], padding=0)


def square(count: int) -> int | None:
    """The side of a square of `count` patches, None if they fill none."""
    side = math.isqrt(count)
    return side if side * side == count and side else None


def positions(net: ImageNet, table: Value, grid: tuple[int, int], patches: Value, *, antialias: bool = False) -> Value:
    """The embedding of each patch, [1, height x width, channels]; interpolated if the image has other sizes than those
    the model was trained for.

    Args:
        table: [1, rows x columns, channels], of the trained size.
        grid: rows and columns.
        patches: [batch, channels, height, width]; it has the wanted sizes.
        antialias: whether to average when there are fewer patches than trained positions, as timm does.
    """
    planes = net.Transpose(net.Reshape(table, [1, *grid, -1]), perm=[0, 3, 1, 2])
    return net.flatten(bicubic(net, planes, size_of(net, patches), antialias=antialias))
