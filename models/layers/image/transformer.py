"""Transformer layers of image models, under timm's names of weights."""

from __future__ import annotations

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Value
from ...schema.network_hyperparameters import count_of
from ..linear import linear
from ..norm import layer_norm
from .image_net import ImageNet


def heads_first(net: ImageNet, x: Value, heads: int, size: int) -> Value:
    """[batch, length, heads x size] as [batch, heads, length, size]."""
    value: Value = net.Transpose(net.split_heads(x, heads, size), perm=[0, 2, 1, 3])
    return value


def attend(net: ImageNet, q: Value, k: Value, v: Value, bias: Value | None = None, scale: float | None = None) -> Value:
    """Attention output [batch, length, heads x size] of queries, keys and values [batch, heads, length, size].

    Args:
        bias: added to the scores; broadcast to [batch, heads, length, length].
        scale: of the scores; None for 1 / sqrt(size).
    """
    return net.merge_heads(net.Transpose(net.Attention(q, k, v, bias, scale=scale), perm=[0, 2, 1, 3]))


def self_attention(net: ImageNet, x: Value, name: str, heads: int, bias: Value | None = None) -> Value:
    """Attention with the weights ``NAME.qkv`` and ``NAME.proj``, and norms of queries, keys and the result if the model
    has them."""
    width = net.channels(f"{name}.qkv") // 3
    size = width // heads
    parts = net.split(linear(net, x, f"{name}.qkv"), [width] * 3)
    q, k, v = (heads_first(net, part, heads, size) for part in parts)
    if net.has(f"{name}.q_norm.weight"):
        q, k = (layer_norm(net, item, f"{name}.{part}_norm", net.config.eps) for item, part in ((q, "q"), (k, "k")))
    return linear(net, _normed(net, attend(net, q, k, v, bias), name), f"{name}.proj")


def queries_keys_values(net: ImageNet, x: Value, name: str) -> list[Value]:
    """Queries, keys and values [batch, length, width] with ``NAME.qkv``, or ``q_proj``, ``k_proj`` and ``v_proj``.
    Biases may be ``q_bias`` and ``v_bias``, where keys have none."""
    if net.has(f"{name}.q_proj.weight"):
        return [linear(net, x, f"{name}.{part}_proj") for part in "qkv"]
    width = net.channels(f"{name}.qkv") // 3
    y = linear(net, x, f"{name}.qkv")
    if net.has(f"{name}.q_bias"):
        zeros = net.constant(np.zeros(width, np.float32))
        y = net.Add(y, net.Concat(net.vector(f"{name}.q_bias"), zeros, net.vector(f"{name}.v_bias"), axis=0))
    return net.split(y, [width] * 3)


def projected_attention(
    net: ImageNet, q: Value, k: Value, v: Value, name: str, heads: int, bias: Value | None = None
) -> Value:
    """Attention of queries, keys and values [batch, length, width] with the weights ``NAME.q_proj``, ``NAME.k_proj``,
    ``NAME.v_proj`` and ``NAME.out_proj``; `bias` as in `attend`."""
    width = net.channels(f"{name}.q_proj")
    if width % heads:
        why = f"{heads} heads do not divide a width of {width}"
        raise FormatError("E-ARCH-KEY", net.config.path, why)
    q, k, v = (
        heads_first(net, linear(net, x, f"{name}.{part}_proj"), heads, width // heads)
        for part, x in zip("qkv", (q, k, v), strict=True)
    )
    return linear(net, attend(net, q, k, v, bias), f"{name}.out_proj")


def perceptron(net: ImageNet, x: Value, name: str) -> Value:
    """Linear layers ``NAME.0``, ``NAME.1`` ... with ReLU between them."""
    count = count_of(net.weights, f"{name}.{{i}}.weight")
    for i in range(count):
        x = linear(net, x, f"{name}.{i}")
        x = net.Relu(x) if i + 1 < count else x
    return x


def mlp(net: ImageNet, x: Value, name: str, *, inner_norm: bool = False) -> Value:
    """``NAME.fc2`` of the activated ``NAME.fc1``, or ``w3`` and ``w12``; the first layer of twice the width is gate and
    projection in one (SwiGLU). `inner_norm`: with ``NAME.norm`` between them, if the model has it."""
    first, last = (f"{name}.{part}" for part in (("fc1", "fc2") if net.has(f"{name}.fc1.weight") else ("w12", "w3")))
    width = net.tensor(f"{last}.weight").shape[1]
    y = linear(net, x, first)
    if net.channels(first) == 2 * width:
        gate, up = net.split(y, [width, width])
        y = net.Mul(net.activate(gate, "silu"), up)
    else:
        y = net.activate(y, net.config.act)
    return linear(net, _normed(net, y, name) if inner_norm else y, last)


def _normed(net: ImageNet, x: Value, name: str) -> Value:
    """With the norm ``NAME.norm``, if the model has it."""
    return layer_norm(net, x, f"{name}.norm", net.config.eps) if net.has(f"{name}.norm.weight") else x


def layer_scale(net: ImageNet, x: Value, name: str) -> Value:
    """A factor per channel (LayerScale; Touvron et al. 2021, arXiv:2103.17239), if the model has the weight."""
    if not net.has(name):
        return x
    y: Value = net.Mul(x, net.vector(name))
    return y


def block(net: ImageNet, x: Value, name: str, heads: int, bias: Value | None = None) -> Value:
    """Pre-norm layer: attention, then a feed-forward network."""
    eps = net.config.eps
    y = self_attention(net, layer_norm(net, x, f"{name}.norm1", eps), f"{name}.attn", heads, bias)
    x = net.Add(x, layer_scale(net, y, f"{name}.ls1.gamma"))
    y = mlp(net, layer_norm(net, x, f"{name}.norm2", eps), f"{name}.mlp", inner_norm=True)
    return net.Add(x, layer_scale(net, y, f"{name}.ls2.gamma"))


def attention_pool(net: ImageNet, x: Value, name: str, heads: int) -> Value:
    """One vector of tokens [batch, length, width]: what a learned query sees, then a feed-forward network (SigLIP;
    Zhai et al. 2023, arXiv:2303.15343)."""
    width = net.channels(f"{name}.q")
    size = width // heads
    k, v = (heads_first(net, part, heads, size) for part in net.split(linear(net, x, f"{name}.kv"), [width] * 2))
    query = linear(net, net.vector(f"{name}.latent"), f"{name}.q")
    batch = net.Concat(net.Shape(x, start=0, end=1), [1, 1], axis=0)
    y = linear(net, attend(net, heads_first(net, net.Expand(query, batch), heads, size), k, v), f"{name}.proj")
    y = net.Add(y, mlp(net, layer_norm(net, y, f"{name}.norm", net.config.eps), f"{name}.mlp"))
    value: Value = net.Squeeze(y, [1])
    return value
