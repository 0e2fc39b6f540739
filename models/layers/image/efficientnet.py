"""Stages of inverted residuals, as EfficientNet and MobileNet have them (Tan and Le 2019, arXiv:1905.11946)."""

from __future__ import annotations

from ....runtime.ir.graph import Value
from .conv import conv_norm
from .image_net import ImageNet
from .inverted_residual import Style, mobile_block

B0 = [1, 2, 2, 2, 1, 2, 1]
"""Strides of the stages of EfficientNet."""


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    config = net.config
    style = Style(config.act, same=config.same, epsilon=config.eps, conv_skip=True)
    x = conv_norm(
        net, net.pixels("conv_stem.weight"), "conv_stem", "bn1", stride=2, padding=style.padding, epsilon=config.eps
    )
    x, channels = net.activate(x, config.act), net.channels("conv_stem")
    x = mobile_stages(net, x, channels, [style] * len(config.strides))
    x = conv_norm(net, x, "conv_head", "bn2", padding=style.padding, epsilon=config.eps)
    return net.activate(x, config.act)


def mobile_stages(net: ImageNet, x: Value, channels: int, styles: list[Style]) -> Value:
    """Stages of blocks ``blocks.{s}.{b}``, the first of which has the stage's stride."""
    for s, (stride, style) in enumerate(zip(net.config.strides, styles, strict=True)):
        b = 0
        while b == 0 or net.under(f"blocks.{s}.{b}."):
            x, channels = mobile_block(net, x, channels, f"blocks.{s}.{b}", stride if b == 0 else 1, style)
            b += 1
    return x
