"""EfficientNet (Tan and Le 2019, arXiv:1905.11946) under the names of transformers, which counts blocks through all
stages."""

from __future__ import annotations

import math

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed, Real
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv_norm
from ..layers.image.efficientnet import B0
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool, squeeze_excite
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, STAGES, ClassTask, image_act, norm_eps, settle_classifier

BLOCK = "encoder.blocks.{i}."
MODULES = (
    Module("conv_stem", hf="embeddings.convolution"),
    Module("bn1", hf="embeddings.batchnorm"),
    Module("blocks.{i}.conv_pw", hf=f"{BLOCK}expansion.expand_conv"),
    Module("blocks.{i}.bn1", hf=f"{BLOCK}expansion.expand_bn"),
    Module("blocks.{i}.conv_dw", hf=f"{BLOCK}depthwise_conv.depthwise_conv"),
    Module("blocks.{i}.bn2", hf=f"{BLOCK}depthwise_conv.depthwise_norm"),
    Module("blocks.{i}.se.conv_reduce", hf=f"{BLOCK}squeeze_excite.reduce"),
    Module("blocks.{i}.se.conv_expand", hf=f"{BLOCK}squeeze_excite.expand"),
    Module("blocks.{i}.conv_pwl", hf=f"{BLOCK}projection.project_conv"),
    Module("blocks.{i}.bn3", hf=f"{BLOCK}projection.project_bn"),
    Module("conv_head", hf="encoder.top_conv"),
    Module("bn2", hf="encoder.top_bn"),
    Module("classifier"),
)
FACTOR = Real(0, 64, above=True)
KEYS = (
    ClassTask("EfficientNet"),
    *LABELS,
    Key("strides", "strides", "strides", B0, Listed(Integer(1, 2), 1, 16)),
    Key("repeats", "num_block_repeats", "block_repeats", [1, 2, 2, 3, 3, 4, 1], STAGES),
    Key("depth", "depth_coefficient", "depth_coefficient", 3.1, FACTOR),
    Key("even", "depthwise_padding", "depthwise_padding", [], Listed(Integer(0, 4096), 0, 4096)),
    Key("pooling", "pooling_type", "pooling", "mean", Choice(("mean", "max"))),
    norm_eps(0.001, "batch_norm_eps"),
    image_act("swish"),
    Key("width", "width_coefficient", "width_coefficient", 2.0, FACTOR),
    Key("divisor", "depth_divisor", "depth_divisor", 8, COUNT),
    Key("kernels", "kernel_sizes", "kernel_sizes", [3, 3, 5, 3, 5, 5, 3], STAGES),
    Key("inputs", "in_channels", "in_channels", [32, 16, 24, 40, 80, 112, 192], Listed(COUNT, 1, 16)),
    Key("outputs", "out_channels", "out_channels", [16, 24, 40, 80, 112, 192, 320], Listed(COUNT, 1, 16)),
    Key("expansions", "expand_ratios", "expand_ratios", [1, 6, 6, 6, 6, 6, 6], STAGES),
    Key("squeezed", "squeeze_expansion_ratio", "squeeze_expansion_ratio", 0.25, FACTOR),
    Key("hidden", "hidden_dim", "hidden_dim", 2560, COUNT),
    Key("image", "image_size", "image_size", 600, COUNT),
)
"""`even`: numbers of the blocks whose depthwise convolution is padded alike on all sides. From `width` on they only say
how transformers finds the sizes that the weights have."""


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    config, number = net.config, 0
    x = conv_norm(net, net.pixels("conv_stem.weight"), "conv_stem", "bn1", stride=2, padding=(0, 1), epsilon=config.eps)
    x = net.activate(x, config.act)
    for stride, repeats in zip(config.strides, config.repeats, strict=True):
        for index in range(math.ceil(config.depth * repeats)):
            y = _block(net, x, number, 1 if index else stride)
            x, number = net.Add(y, x) if index else y, number + 1
    return net.activate(conv_norm(net, x, "conv_head", "bn2", epsilon=config.eps), config.act)


def _block(net: ImageNet, x: Value, number: int, stride: int) -> Value:
    """Expansion, depthwise convolution, squeeze and excitation, reduction."""
    name, act, eps = f"blocks.{number}", net.config.act, net.config.eps
    if net.has(f"{name}.conv_pw.weight"):
        x = net.activate(conv_norm(net, x, f"{name}.conv_pw", f"{name}.bn1", epsilon=eps), act)
    half = net.kernel(f"{name}.conv_dw.weight").shape[-1] // 2
    padding = (half - 1, half) if stride > 1 and number not in net.config.even else half
    y = conv_norm(net, x, f"{name}.conv_dw", f"{name}.bn2", stride=stride, padding=padding, groups=0, epsilon=eps)
    y = squeeze_excite(net, net.activate(y, act), f"{name}.se.conv_reduce", f"{name}.se.conv_expand", act)
    return conv_norm(net, y, f"{name}.conv_pwl", f"{name}.bn3", epsilon=eps)


def pool(net: ImageNet, x: Value) -> Value:
    """The mean or the largest element of each channel."""
    if net.config.pooling == "mean":
        return global_pool(net, x)
    largest: Value = net.Flatten(net.GlobalMaxPool(x), axis=1)
    return largest


ARCHITECTURES = (
    Architecture(
        "efficientnet_hf",
        "EfficientNet",
        ("efficientnet",),
        ("efficientnet_hf",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "classifier")),
        settle=settle_classifier,
        prefixes=("efficientnet.",),
        ignored=(),
        modules=MODULES,
    ),
)
