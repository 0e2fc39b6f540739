"""Latents of pictures and videos as patches, and positions of patches and captions on three axes."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..net import Net


class PatchGrid:
    """Patches of one frame of latents [batch, channels, frames, height, width].

    Args:
        size: rows and columns of a patch.

    Attributes:
        batch, frames, rows, columns: numbers of latents, and of patches along each axis, int64 [1].
    """

    def __init__(self, net: Net, latents: Value, size: int) -> None:
        self.net, self.size = net, size
        self.batch, self.frames, height, width = (net.Shape(latents, start=axis, end=axis + 1) for axis in (0, 2, 3, 4))
        self.rows, self.columns = net.Div(height, [size]), net.Div(width, [size])

    def patches(self, latents: Value) -> Value:
        """Patches [batch, frames x rows x columns, size x size x channels]."""
        net, size, channels = self.net, self.size, self.net.config.channels
        cut = net.Concat([0, channels], self.frames, self.rows, [size], self.columns, [size], axis=0)
        y = net.Transpose(net.Reshape(latents, cut), perm=[0, 2, 3, 5, 4, 6, 1])
        flat: Value = net.Reshape(y, [0, -1, size * size * channels])
        return flat

    def latents(self, patches: Value) -> Value:
        """Inverse of `patches`."""
        net, size, channels = self.net, self.size, self.net.config.channels
        cut = net.Concat([0], self.frames, self.rows, self.columns, [size, size, channels], axis=0)
        y = net.Transpose(net.Reshape(patches, cut), perm=[0, 6, 1, 2, 4, 3, 5])
        height, width = net.Mul(self.rows, [size]), net.Mul(self.columns, [size])
        whole: Value = net.Reshape(y, net.Concat([0, channels], self.frames, height, width, axis=0))
        return whole

    def positions(self, start: Value, padding: Value) -> Value:
        """Positions [patches + padding, 3]: frame, counted from `start` (f32 [1]), row and column; 0 for padding
        (int64 [1])."""
        net = self.net
        axes = (
            (net.Add(count_up(net, self.frames), start), [-1, 1, 1, 1]),
            (count_up(net, self.rows), [1, -1, 1, 1]),
            (count_up(net, self.columns), [1, 1, -1, 1]),
        )
        shape = net.Concat(self.frames, self.rows, self.columns, [1], axis=0)
        grid = net.Concat(*(net.Expand(net.Reshape(axis, ones), shape) for axis, ones in axes), axis=-1)
        joined: Value = net.Concat(net.Reshape(grid, [-1, 3]), zeros(net, padding, 3), axis=0)
        return joined


def caption_positions(net: Net, length: Value) -> Value:
    """Positions [length, 3] of a caption: 1, 2, ... on the first axis; `length` is int64 [1]."""
    first = net.Add(net.Unsqueeze(count_up(net, length), [1]), 1.0)
    positions: Value = net.Concat(first, zeros(net, length, 2), axis=1)
    return positions


def padded(net: Net, x: Value, token: str, multiple: int) -> tuple[Value, Value]:
    """`x` [batch, length, hidden], followed by copies of a weight up to a multiple of a length; and how many copies
    these are, int64 [1]."""
    missing = net.Mod(net.Neg(net.Shape(x, start=1, end=2)), [multiple])
    shape = net.Concat(net.Shape(x, start=0, end=1), missing, [1], axis=0)
    return net.Concat(x, net.Expand(net.vector(token), shape), axis=1), missing


def zeros(net: Net, length: Value, width: int) -> Value:
    """f32 zeros [length, width]."""
    values: Value = net.Expand(net.constant([0.0], "float32"), net.Concat(length, [width], axis=0))
    return values


def count_up(net: Net, length: Value) -> Value:
    """0, 1, ... as f32 [length], of an int64 [1]."""
    zero, one = net.Constant(value_int=0), net.Constant(value_int=1)
    numbers: Value = net.Cast(net.Range(zero, net.Squeeze(length, [0]), one), to=1)
    return numbers
