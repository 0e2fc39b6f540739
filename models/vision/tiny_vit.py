"""TinyViT (Wu et al. 2022, arXiv:2207.10666), whose layers MobileSAM's encoder has."""

from __future__ import annotations

from collections.abc import Container

from ...runtime.contract.architecture import TIMM, Architecture
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.offset_bias import in_windows, offset_biases, window_side
from ..layers.image.pooling import global_pool
from ..layers.image.transformer import attend, heads_first, mlp
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, norm_eps, settled_stages

MODULES = (Module("patch_embed"), Module("stages.{s}"), Module("head.norm"), Module("head.fc"))
BLOCKS = ("stages.{s}.blocks.{b}.conv1.conv.weight", "stages.{s}.blocks.{b}.attn.qkv.weight")
"""Weights of blocks of convolutions, and of blocks of attention."""
KEYS = (ClassTask("TinyVit"), *LABELS, DEPTHS, norm_eps(1e-5), image_act("gelu"))


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]: see `stages`."""
    return stages(net, net.pixels("patch_embed.conv1.conv.weight"))


def stages(net: ImageNet, x: Value, prefix: str = "", kept: Container[int] = ()) -> Value:
    """A stage of convolutions, then stages of attention in windows.

    Args:
        x: images [batch, channels, height, width].
        prefix: before the names of all weights.
        kept: channels of stages that begin without halving height and width.
    """
    act = net.config.act
    x = _conv(net, x, f"{prefix}patch_embed.conv1", 2)
    x = _conv(net, net.activate(x, act), f"{prefix}patch_embed.conv2", 2)
    for s, depth in enumerate(net.config.depths):
        down = f"{prefix}stages.{s}.downsample"
        if net.has(f"{down}.conv1.conv.weight"):
            stride = 1 if net.channels(f"{down}.conv2.conv") in kept else 2
            x = net.activate(_conv(net, x, f"{down}.conv1"), act)
            x = net.activate(_conv(net, x, f"{down}.conv2", stride, 0), act)
            x = _conv(net, x, f"{down}.conv3")
        for b in range(depth):
            name = f"{prefix}stages.{s}.blocks.{b}"
            x = _layer(net, x, name) if net.has(f"{name}.attn.qkv.weight") else _residual(net, x, name)
    return x


def _conv(net: ImageNet, x: Value, name: str, stride: int = 1, groups: int = 1) -> Value:
    return conv_norm(net, x, f"{name}.conv", f"{name}.bn", stride=stride, groups=groups)


def _residual(net: ImageNet, x: Value, name: str) -> Value:
    """Inverted residual block, activated after the sum."""
    act = net.config.act
    y = net.activate(_conv(net, x, f"{name}.conv1"), act)
    y = net.activate(_conv(net, y, f"{name}.conv2", groups=0), act)
    return net.activate(net.Add(_conv(net, y, f"{name}.conv3"), x), act)


def _layer(net: ImageNet, x: Value, name: str) -> Value:
    """Attention in windows, a depthwise convolution, a feed-forward network."""
    biases, width = f"{name}.attn.attention_biases", net.channels(f"{name}.attn.proj")
    side, heads = window_side(net, biases), net.tensor(biases).shape[0]

    def attention(tokens: Value) -> Value:
        normed = layer_norm(net, tokens, f"{name}.attn.norm", net.config.eps)
        mixed = heads_first(net, linear(net, normed, f"{name}.attn.qkv"), heads, 3 * width // heads)
        q, k, v = net.split(mixed, [width // heads] * 3)
        return linear(net, attend(net, q, k, v, offset_biases(net, biases)), f"{name}.attn.proj")

    last = net.channels_last(x)
    x = net.channels_first(net.Add(last, in_windows(net, last, side, width, attention)))
    last = net.channels_last(_conv(net, x, f"{name}.local_conv", groups=0))
    y = mlp(net, layer_norm(net, last, f"{name}.mlp.norm", net.config.eps), f"{name}.mlp")
    return net.channels_first(net.Add(last, y))


def pool(net: ImageNet, x: Value) -> Value:
    """The normalized means of the channels."""
    return layer_norm(net, global_pool(net, x), "head.norm", net.config.eps)


ARCHITECTURES = (
    Architecture(
        "tiny_vit",
        "TinyViT",
        (),
        ("tiny_vit",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "tiny_vit",
            r"tiny_vit_\w+",
            {TIMM: ("patch_embed.conv2.conv.weight", "stages.1.blocks.0.local_conv.conv.weight")},
            ("head.fc.weight",),
        ),
        settle=settled_stages("head.fc.weight", *BLOCKS),
        prefixes=(),
        ignored=("attention_bias_idxs$",),
        modules=MODULES,
    ),
)
