"""Norms over the last axis, with weights ``NAME.weight`` and ``NAME.bias`` where the model has them."""

from __future__ import annotations

import numpy as np

from ...runtime.graph import Value
from .net import Net


def rms_norm(net: Net, x: Value, name: str, epsilon: float) -> Value:
    """Root mean square norm (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    y: Value = net.RMSNormalization(x, net.vector(f"{name}.weight"), epsilon=epsilon)
    return y


def norm(net: Net, x: Value, name: str) -> Value:
    """Root mean square norm with the model's epsilon."""
    return rms_norm(net, x, name, net.config.eps)


def bias_norm(net: Net, x: Value, name: str) -> Value:
    """Layer norm with the model's epsilon."""
    return layer_norm(net, x, name, net.config.eps)


def layer_norm(net: Net, x: Value, name: str, epsilon: float, width: int | None = None) -> Value:
    """Layer norm (Ba et al. 2016, arXiv:1607.06450); `width` is needed where the norm has no weight."""
    weight = net.vector(f"{name}.weight") if net.has(f"{name}.weight") else np.ones(width or 0, np.float32)
    y: Value = net.LayerNormalization(x, weight, net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None, epsilon=epsilon)
    return y


def head_norm(net: Net, x: Value, name: str, heads: int, size: int, epsilon: float) -> Value:
    """`x` [batch, length, heads x size] with each head normed by its root mean square, ``NAME.weight`` [size]."""
    return net.heads_together(rms_norm(net, net.heads_apart(x, heads, size), name, epsilon))


def own_head_norm(net: Net, x: Value, name: str, heads: int) -> Value:
    """Layer norm of each head of `x` [batch, length, heads x head_dim], with a weight of its own (``NAME.weight`` [heads, head_dim]), where there is
    one."""
    if not net.has(f"{name}.weight"):
        return x
    size = net.config.head_dim
    y = net.heads_apart(x, heads, size)
    normed = net.LayerNormalization(y, net.once(("ones", size), lambda: net.constant([1.0] * size, "float32")), epsilon=net.config.eps)
    return net.heads_together(net.Mul(normed, net.vector(f"{name}.weight")))
