"""Relative position bias (Raffel et al. 2019, arXiv:1910.10683): what is added to attention scores, by the distance
between key and query."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.graph import Value
from .net import Net


def bucketed(net: Net, distance: Value, buckets: int, farthest: int, *, both_ways: bool = True) -> Value:
    """The bucket of each distance key - query, i64 of the same shape. Half of the buckets are for single distances,
    the others grow logarithmically up to `farthest`.

    Args:
        distance: i64.
        both_ways: whether keys behind the query have buckets of their own; otherwise their distance counts as 0.
    """
    zero = net.Constant(value_int=0)
    if both_ways:
        buckets //= 2
        after = net.Mul(net.Cast(net.Greater(distance, zero), to=7), net.Constant(value_int=buckets))
        distance = net.Abs(distance)
    else:
        after = None
        distance = net.Max(net.Neg(distance), zero)
    exact = buckets // 2
    ratio = net.Log(net.Div(net.Cast(net.Max(distance, net.Constant(value_int=1)), to=1), float(exact)))
    steps = net.Cast(net.Mul(net.Div(ratio, math.log(farthest / exact)), float(buckets - exact)), to=7)
    far = net.Min(net.Add(steps, net.Constant(value_int=exact)), net.Constant(value_int=buckets - 1))
    near = net.Less(distance, net.Constant(value_int=exact))
    found: Value = net.Where(near, distance, far)
    return found if after is None else net.Add(found, after)


def position_bias(net: Net, distance: Value, name: str, farthest: int, *, both_ways: bool = True) -> Value:
    """The bias [1, heads, query, key] of distances [query, key], from ``NAME.weight`` [buckets, heads]."""
    table = net.vector(f"{name}.weight")
    assert table.shape is not None
    (buckets, _) = table.shape
    assert isinstance(buckets, int)
    places = bucketed(net, distance, buckets, farthest, both_ways=both_ways)
    bias: Value = net.Unsqueeze(net.Transpose(net.Gather(table, places), perm=[2, 0, 1]), [0])
    return bias


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
