"""Placeholder tokens: embeddings that the features of pictures replace."""

from __future__ import annotations

from ...runtime.ir.graph import Value
from .encoder import Encoder


def placed(net: Encoder, x: Value, features: Value, placeholder: int) -> Value:
    """Token embeddings [batch, length, hidden] in which the n-th placeholder token of a row is the n-th of its
    `features` [batch, count, hidden]."""
    stands = net.Equal(net.ids, net.Constant(value_int=placeholder))
    counts = net.CumSum(net.Cast(stands, to=7), net.Constant(value_int=1))
    index = net.Max(net.Sub(counts, 1), net.Constant(value_int=0))
    rows = net.GatherND(features, net.Unsqueeze(index, [2]), batch_dims=1)
    value: Value = net.Where(net.Unsqueeze(stands, [2]), rows, x)
    return value
