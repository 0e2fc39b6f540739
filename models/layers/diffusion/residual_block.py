"""Residual blocks and group norms of autoencoders and UNets of latent diffusion (Rombach et al. 2022,
arXiv:2112.10752)."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..image.conv import conv
from ..image.image_net import ImageNet
from ..linear import linear


def group_norm(net: ImageNet, x: Value, name: str, epsilon: float) -> Value:
    """Group norm (Wu and He 2018, arXiv:1803.08494) with the configuration's `groups`, ``NAME.weight`` and
    ``NAME.bias``."""
    scale, shift = net.vector(f"{name}.weight"), net.vector(f"{name}.bias")
    y: Value = net.GroupNormalization(x, scale, shift, num_groups=net.config.groups, epsilon=epsilon)
    return y


def residual_block(net: ImageNet, x: Value, name: str, epsilon: float, condition: Value | None = None) -> Value:
    """Two convolutions after norms and activations, added to the input.

    Args:
        condition: the timestep embedding after its activation, f32 [batch, width], whose projection is added between
            the convolutions; None for networks without one.
    """
    projection = f"{name}.conv_shortcut"  # computed first: then the first norm may overwrite the input
    shortcut = conv(net, x, projection) if net.has(f"{projection}.weight") else x
    y = _normed_conv(net, x, name, 1, epsilon)
    if condition is not None:
        y = net.Add(y, net.Unsqueeze(linear(net, condition, f"{name}.time_emb_proj"), [2, 3]))
    y = _normed_conv(net, y, name, 2, epsilon)
    return net.Add(shortcut, y)


def _normed_conv(net: ImageNet, x: Value, name: str, k: int, epsilon: float) -> Value:
    normed = net.activate(group_norm(net, x, f"{name}.norm{k}", epsilon), net.config.act)
    return conv(net, normed, f"{name}.conv{k}")


def output_conv(net: ImageNet, x: Value, name: str, epsilon: float, act: str) -> Value:
    """The last convolution ``{NAME}conv_out``, after the norm ``{NAME}conv_norm_out`` and an activation."""
    normed = net.activate(group_norm(net, x, f"{name}conv_norm_out", epsilon), act)
    return conv(net, normed, f"{name}conv_out")
