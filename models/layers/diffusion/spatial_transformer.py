"""Transformer layers over the pixels of a feature map with cross attention to text (Rombach et al. 2022,
arXiv:2112.10752), diffusers' Transformer2DModel."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..image.conv import pointwise
from ..image.image_net import ImageNet
from ..linear import linear
from ..norm import layer_norm
from .residual_block import group_norm

GROUP_EPSILON, LAYER_EPSILON = 1e-6, 1e-5


def spatial_transformer(
    net: ImageNet, x: Value, context: Value, name: str, *, layers: int, heads: int, only_cross: bool
) -> Value:
    """A group norm, a projection, transformer layers and a projection, added to `x` [batch, channels, height, width].

    Args:
        context: text embeddings, [batch, tokens, width].
        layers: number of transformer layers.
        heads: attention heads.
        only_cross: whether the first attention of each layer is also a cross attention.
    """
    y = net.flatten(group_norm(net, x, f"{name}.norm", GROUP_EPSILON))
    y = pointwise(net, y, f"{name}.proj_in")
    for k in range(layers):
        y = transformer_layer(net, y, context, f"{name}.transformer_blocks.{k}", heads=heads, only_cross=only_cross)
    return net.Add(x, net.unflatten(pointwise(net, y, f"{name}.proj_out"), x))


def transformer_layer(net: ImageNet, x: Value, context: Value, name: str, *, heads: int, only_cross: bool) -> Value:
    """Self attention, cross attention and a GEGLU network, each with a layer norm before it and added to its input
    [batch, length, width]."""
    y = layer_norm(net, x, f"{name}.norm1", LAYER_EPSILON)
    x = net.Add(x, attention(net, y, context if only_cross else y, f"{name}.attn1", heads))
    y = layer_norm(net, x, f"{name}.norm2", LAYER_EPSILON)
    x = net.Add(x, attention(net, y, context, f"{name}.attn2", heads))
    y = layer_norm(net, x, f"{name}.norm3", LAYER_EPSILON)
    return net.Add(x, geglu(net, y, f"{name}.ff"))


def attention(net: ImageNet, x: Value, source: Value, name: str, heads: int) -> Value:
    """Multi-head attention of queries from `x` [batch, length, width] to keys and values from `source`."""
    q, k, v = (
        net.Transpose(net.split_heads(linear(net, y, f"{name}.to_{part}"), heads, -1), perm=[0, 2, 1, 3])
        for part, y in (("q", x), ("k", source), ("v", source))
    )
    y = net.merge_heads(net.Transpose(net.Attention(q, k, v), perm=[0, 2, 1, 3]))
    return linear(net, y, f"{name}.to_out.0")


def geglu(net: ImageNet, x: Value, name: str) -> Value:
    """down(up(x) * GELU(gate(x))) (Shazeer 2020, arXiv:2002.05202), with up and gate fused in ``NAME.net.0.proj``."""
    up, gate = net.Split(linear(net, x, f"{name}.net.0.proj"), axis=-1, num_outputs=2, outputs=2)
    return linear(net, net.Mul(up, net.Gelu(gate)), f"{name}.net.2")
