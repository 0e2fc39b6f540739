"""Attention with relative positions of rows and columns (Li et al. 2021, arXiv:2112.01526).

A score is ``scale q k + q R_row + q C_column``. Queries get the products with all rows and columns as further elements,
keys a one for their own row and column, so that one product gives the score and no bias [length, length] is stored.
"""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Value
from ..linear import linear
from .image_net import ImageNet
from .transformer import heads_first


def placed_attention(net: ImageNet, x: Value, name: str, heads: int, side: int) -> Value:
    """Self-attention of the tokens [batch, side x side, width] of a square, with ``NAME.qkv``, ``NAME.proj`` and, if
    the model has them, ``NAME.rel_pos_h`` and ``NAME.rel_pos_w`` [2 x side - 1, head size]."""
    width = net.channels(f"{name}.qkv") // 3
    size = width // heads
    parts = net.split(linear(net, x, f"{name}.qkv"), [width] * 3)
    q, k, v = (heads_first(net, part, heads, size) for part in parts)
    queries = net.Mul(q, size**-0.5)
    if net.has(f"{name}.rel_pos_h"):
        square = net.Reshape(q, [0, 0, side, side, size])
        rows = net.MatMul(square, _table(net, f"{name}.rel_pos_h", side))
        columns = net.MatMul(net.Transpose(square, perm=[0, 1, 3, 2, 4]), _table(net, f"{name}.rel_pos_w", side))
        columns = net.Transpose(columns, perm=[0, 1, 3, 2, 4])
        placed = (net.Reshape(part, [0, 0, side * side, side]) for part in (rows, columns))
        queries = net.Concat(queries, *placed, axis=3)
        k = net.Concat(k, _own_places(net, k, side), axis=3)
    y = net.Attention(queries, k, v, scale=1.0)
    return linear(net, net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.proj")


def _table(net: ImageNet, name: str, side: int) -> Value:
    """The vector of each pair of positions, [position of the query, head size, position of the key]."""
    positions = np.arange(side)
    index = net.once(("pairs", side), lambda: net.constant(positions[:, None] - positions + side - 1))
    value: Value = net.Transpose(net.Gather(net.vector(name), index), perm=[0, 2, 1])
    return value


def _own_places(net: ImageNet, keys: Value, side: int) -> Value:
    """Ones for the row and for the column of each key, [batch, heads, side x side, 2 x side]."""
    ones = np.eye(side, dtype=np.float32)
    places = np.concatenate([np.repeat(ones, side, 0), np.tile(ones, (side, 1))], 1)[None, None]
    shape = net.Concat(net.Shape(keys, start=0, end=2), [1, 1], axis=0)
    value: Value = net.Expand(net.once(("places", side), lambda: net.constant(places)), shape)
    return value
