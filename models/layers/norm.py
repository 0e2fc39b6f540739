"""Norms over the last axis, with ``NAME.weight`` and, if the model has it, ``NAME.bias``."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.graph import Value
from .net import Net


def rms_norm(net: Net, x: Value, name: str, epsilon: float) -> Value:
    """Root mean square norm (RMSNorm; Zhang and Sennrich 2019, arXiv:1910.07467)."""
    y: Value = net.RMSNormalization(x, net.vector(f"{name}.weight"), epsilon=epsilon)
    return y


def norm(net: Net, x: Value, name: str) -> Value:
    """Root mean square norm with the model's epsilon."""
    return rms_norm(net, x, name, net.config.eps)


def bias_norm(net: Net, x: Value, name: str) -> Value:
    """Layer norm with the model's epsilon."""
    return layer_norm(net, x, name, net.config.eps)


def layer_norm(net: Net, x: Value, name: str, epsilon: float, width: int | None = None) -> Value:
    """Layer norm (Ba et al. 2016, arXiv:1607.06450); `width` is required if the norm has no weight."""
    weight = net.vector(f"{name}.weight") if net.has(f"{name}.weight") else np.ones(width or 0, np.float32)
    y: Value = net.LayerNormalization(
        x, weight, net.vector(f"{name}.bias") if net.has(f"{name}.bias") else None, epsilon=epsilon
    )
    return y


def head_norm(net: Net, x: Value, name: str, heads: int, size: int, epsilon: float) -> Value:
    """RMSNorm of each head of `x` [batch, length, heads x size], with ``NAME.weight`` [size]."""
    return net.merge_heads(rms_norm(net, net.split_heads(x, heads, size), name, epsilon))


def head_layer_norm(net: Net, x: Value, name: str, heads: int) -> Value:
    """Layer norm of each head of `x` [batch, length, heads x head_dim] with ``NAME.weight`` and ``NAME.bias``
    [head_dim], if the model has it."""
    if not net.has(f"{name}.weight"):
        return x
    return net.merge_heads(bias_norm(net, net.split_heads(x, heads, net.config.head_dim), name))


def own_head_norm(net: Net, x: Value, name: str, heads: int) -> Value:
    """Layer norm of each head of `x` [batch, length, heads x head_dim] with ``NAME.weight`` [heads, head_dim], if the
    model has it."""
    if not net.has(f"{name}.weight"):
        return x
    size = net.config.head_dim
    y = net.split_heads(x, heads, size)
    normed = net.LayerNormalization(
        y, net.once(("ones", size), lambda: net.constant([1.0] * size, "float32")), epsilon=net.config.eps
    )
    return net.merge_heads(net.Mul(normed, net.vector(f"{name}.weight")))
