"""FastViT (Vasu et al. 2023, arXiv:2303.14189): mixers of tokens that are one convolution in inference, and
attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import KEEP_BRANCHES, TIMM, Architecture, Key
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.branches import branch_channels, branched_conv, branches
from ..layers.image.conv import batch_norm, conv, conv_norm, convolve
from ..layers.image.image_net import ImageNet
from ..layers.image.inverted_residual import channel_scale
from ..layers.image.kernels import added, identity_kernel, negative, plain_kernel, scaled_kernel
from ..layers.image.pooling import global_pool
from ..layers.image.transformer import self_attention
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, norm_eps, settled_stages

HEAD_SIZE = 32
BLOCK = "stages.{s}.blocks.{b}.mlp.fc1.weight"
"""A weight of every block."""
MODULES = (Module("stem.{i}"), Module("stages.{s}"), Module("final_conv"), Module("head.fc"))
KEYS = (
    ClassTask("FastViT"),
    *LABELS,
    DEPTHS,
    Key("activates_patches", (), "activates_patches", False, flag),
    norm_eps(1e-5),
    image_act("gelu"),
)
"""`activates_patches`: whether an activation follows the large convolution between stages (MobileCLIP)."""


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Whether an activation follows the large convolution between stages."""
    return {"activates_patches": "mci" in name}


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    config = net.config
    names = ("stem.0.conv_kxk.0.conv.weight", "stem.0.reparam_conv.weight")
    first = next((name for name in names if net.has(name)), names[0])
    x, channels = net.pixels(first), net.kernel(first).shape[1]
    for i, stride in enumerate((2, 2, 1)):
        x = branched_conv(net, x, channels, f"stem.{i}", stride, config.act)
        channels = branch_channels(net, f"stem.{i}")
    for s, depth in enumerate(config.depths):
        name = f"stages.{s}"
        if net.under(f"{name}.downsample."):
            large, after = f"{name}.downsample.proj.0", f"{name}.downsample.proj.1"
            x = branched_conv(net, x, channels, large, 2, config.act if config.activates_patches else "none")
            channels = branch_channels(net, large)
            x = branched_conv(net, x, channels, after, 1, config.act)
        x = _positions(net, x, f"{name}.pos_emb")
        for b in range(depth):
            x = _block(net, x, f"{name}.blocks.{b}", channels)
    return branched_conv(net, x, channels, "final_conv", 1, config.act)


def _positions(net: ImageNet, x: Value, name: str) -> Value:
    """A depthwise convolution that encodes positions, added to the input."""
    if net.has(f"{name}.reparam_conv.weight"):
        return conv(net, x, f"{name}.reparam_conv", groups=0)
    if not net.has(f"{name}.pos_enc.weight"):
        return x
    y: Value = net.Add(conv(net, x, f"{name}.pos_enc", groups=0), x)
    return y


def _block(net: ImageNet, x: Value, name: str, channels: int) -> Value:
    """A mixer of tokens or attention, then a convolutional feed-forward network."""
    if net.has(f"{name}.token_mixer.qkv.weight"):
        y = _attention(net, x, name, channels)
        x = net.Add(x, channel_scale(net, y, f"{name}.layer_scale_1.gamma"))
        scale = f"{name}.layer_scale_2.gamma"
    else:
        x, scale = _mixed(net, x, f"{name}.token_mixer", channels), f"{name}.layer_scale.gamma"
    y = conv_norm(net, x, f"{name}.mlp.conv.conv", f"{name}.mlp.conv.bn", groups=0)
    y = conv(net, net.activate(conv(net, y, f"{name}.mlp.fc1"), net.config.act), f"{name}.mlp.fc2")
    z: Value = net.Add(x, channel_scale(net, y, scale))
    return z


def _attention(net: ImageNet, x: Value, name: str, channels: int) -> Value:
    if net.has(f"{name}.norm.running_mean"):
        normed = batch_norm(net, x, f"{name}.norm")
    else:
        normed = net.channels_first(layer_norm(net, net.channels_last(x), f"{name}.norm", net.config.eps))
    y = self_attention(net, net.flatten(normed), f"{name}.token_mixer", channels // HEAD_SIZE)
    return net.unflatten(y, x)


def _mixed(net: ImageNet, x: Value, name: str, channels: int) -> Value:
    """``x + scale (mixer(x) - norm(x))`` as one depthwise convolution, unless branches are kept."""
    if net.has(f"{name}.reparam_conv.weight"):
        return convolve(net, x, name, plain_kernel(net, f"{name}.reparam_conv"), groups=0)
    if net.config.values.get(KEEP_BRANCHES):
        mixed, normed = (branched_conv(net, x, channels, f"{name}.{part}", 1, "none") for part in ("mixer", "norm"))
        y: Value = net.Add(x, channel_scale(net, net.Sub(mixed, normed), f"{name}.layer_scale.gamma"))
        return y
    mixer, norm = (added(list(branches(net, f"{name}.{part}", channels).values())) for part in ("mixer", "norm"))
    difference = added([mixer, negative(norm)])
    if net.has(f"{name}.layer_scale.gamma"):
        scale = net.array(f"{name}.layer_scale.gamma").reshape(-1)
        difference = scaled_kernel(difference, scale, 0 * scale)
    return convolve(net, x, name, added([identity_kernel(channels, channels, 1), difference]), groups=0)


ARCHITECTURES = (
    Architecture(
        "fastvit",
        "FastViT",
        (),
        ("fastvit",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "fastvit",
            r"fastvit_\w+",
            {TIMM: ("stem.0.conv_kxk.0.conv.weight", "stages.0.blocks.0.mlp.conv.conv.weight")},
            ("head.fc.weight",),
            settings,
        ),
        settle=settled_stages("head.fc.weight", BLOCK),
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
