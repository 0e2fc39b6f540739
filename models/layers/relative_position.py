"""Relative position bias (Raffel et al. 2019, arXiv:1910.10683): what is added to attention scores, by the distance
between key and query."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.graph import Value
from .net import Net


def buckets_of(distance: np.ndarray, buckets: int, farthest: int, *, both_ways: bool = True) -> np.ndarray:
    """The bucket of each distance key - query, int64 of the same shape. Half of the buckets are for single distances,
    the others grow logarithmically up to `farthest`, from where on all distances share the last one.

    Args:
        distance: int64.
        buckets: fewer than twice `farthest`; in both directions, fewer than four times.
        both_ways: whether keys after the query have buckets of their own; otherwise their distance counts as 0.
    """
    after = np.zeros_like(distance)
    if both_ways:
        buckets //= 2
        after = (distance > 0) * buckets
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    steps = (ratio / np.float32(math.log(farthest / exact)) * np.float32(buckets - exact)).astype(np.int64)
    found: np.ndarray = after + np.where(distance < exact, distance, np.minimum(exact + steps, buckets - 1))
    return found


def position_bias(
    net: Net, distance: Value, name: str, farthest: int, *, both_ways: bool = True, by_row: bool = False
) -> Value:
    """The bias [1, heads, query, key] of distances [query, key], from ``NAME.weight`` [buckets, heads]; see
    `buckets_of`.

    Args:
        by_row: whether distances, and the bias, differ between rows of the batch: [batch, query, key].
    """
    weight = net.vector(f"{name}.weight")
    assert weight.shape is not None
    (buckets, _) = weight.shape
    assert isinstance(buckets, int)
    nearest, last = -farthest, farthest if both_ways else 0
    positions = buckets_of(np.arange(nearest, last + 1), buckets, farthest, both_ways=both_ways)
    table = net.Transpose(net.Gather(weight, net.constant(positions)), perm=[1, 0])
    rows = net.Sub(net.Clip(distance, net.Constant(value_int=nearest), net.Constant(value_int=last)), nearest)
    bias = net.Gather(table, rows, axis=1)
    made: Value = net.Transpose(bias, perm=[1, 0, 2, 3]) if by_row else net.Unsqueeze(bias, [0])
    return made


def log_bucketed(net: Net, distance: Value, buckets: int, farthest: int) -> Value:
    """The bucket of each distance, i64 of the same shape and with the same sign: distances up to half of `buckets` are
    their own, farther ones grow logarithmically up to `farthest` (He et al. 2020, arXiv:2006.03654)."""
    middle = buckets // 2
    sizes = net.Cast(net.Max(net.Abs(distance), net.Constant(value_int=max(1, middle - 1))), to=1)
    ratio = net.Div(net.Log(net.Div(sizes, float(middle))), float(np.log(np.float32((farthest - 1) / middle))))
    steps = net.Cast(net.Add(net.Ceil(net.Mul(ratio, float(middle - 1))), float(middle)), to=7)
    near = net.LessOrEqual(net.Abs(distance), net.Constant(value_int=middle))
    found: Value = net.Where(near, distance, net.Mul(steps, net.Sign(distance)))
    return found
