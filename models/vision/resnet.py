"""ResNet (He et al. 2015, arXiv:1512.03385), ResNeXt (arXiv:1611.05431), SE-ResNet (arXiv:1709.01507) and ResNet-D
(arXiv:1812.01187)."""

from __future__ import annotations

from ...runtime.contract.architecture import HF, TIMM, TORCHVISION, Architecture, Config, Key
from ...runtime.contract.hyperparameter import Choice, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import average_pool, global_pool, max_pool, squeeze_excite
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.activation import activation
from ..schema.network_hyperparameters import (
    LABELS,
    STAGES,
    WIDTHS,
    ClassTask,
    Implied,
    depths_of,
    image_act,
    settle_labels,
)

BLOCK = "encoder.stages.{s}.layers.{b}."
MODULES = (
    Module("conv1", hf="embedder.embedder.convolution"),
    Module("bn1", hf="embedder.embedder.normalization"),
    Module("layer{s+1}.{b}.conv{k+1}", hf=f"{BLOCK}layer.{{k}}.convolution"),
    Module("layer{s+1}.{b}.bn{k+1}", hf=f"{BLOCK}layer.{{k}}.normalization"),
    Module("layer{s+1}.{b}.downsample.0", hf=f"{BLOCK}shortcut.convolution"),
    Module("layer{s+1}.{b}.downsample.1", hf=f"{BLOCK}shortcut.normalization"),
    Module("layer{s+1}.{b}.downsample.2", hf=()),
    Module("layer{s+1}.{b}.se", hf=()),
    Module("fc", hf="classifier.1"),
)
MARKS = ("bn1.running_mean", "layer1.0.conv1.weight", "layer2.0.bn1.running_mean")
KEYS = (
    ClassTask("ResNet"),
    *LABELS,
    Key("depths", "depths", "depths", None, STAGES),
    Key("widths", "hidden_sizes", "widths", None, WIDTHS),
    Key("stem_width", "embedding_size", "stem_width", None),
    Key("block", "layer_type", "block", None, Choice(("basic", "bottleneck"))),
    Key("downsample_first", "downsample_in_first_stage", "downsample_in_first_stage", False, flag),
    Key("downsample_before", "downsample_in_bottleneck", "downsample_in_bottleneck", False, flag),
    image_act("relu"),
    Key("inner_act", (), "inner_activation", lambda config: "relu" if config.names == HF else config.act, activation),
)
"""Inside blocks transformers always has ReLU."""


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take depths, widths and the kind of block from the weights."""
    settle_labels(config, weights, "fc.weight")
    depths = depths_of(weights, "layer{s+1}.{b}.conv1.weight")
    last = "conv3" if "layer1.0.conv3.weight" in weights else "conv2"
    widths = [weights[f"layer{s + 1}.0.{last}.weight"].shape[0] for s in range(len(depths))]
    config.values |= {
        "depths": depths,
        "widths": widths,
        "block": "bottleneck" if last == "conv3" else "basic",
        "stem_width": weights["bn1.weight"].shape[0] if "bn1.weight" in weights else None,
    }


def features(net: ImageNet) -> Value:
    """A stem that divides the size by 4, then stages of residual blocks, [batch, channels, height / 32, width / 32]."""
    config = net.config
    x = max_pool(net, _stem(net))
    for s, depth in enumerate(config.depths):
        for b in range(depth):
            stride = 2 if b == 0 and (s > 0 or config.downsample_first) else 1
            x = _block(net, x, f"layer{s + 1}.{b}", stride)
    return x


def _stem(net: ImageNet) -> Value:
    """One convolution of 7 x 7, or three of 3 x 3 (ResNet-D)."""
    act = net.config.act
    if net.has("conv1.weight"):
        return net.activate(conv_norm(net, net.pixels("conv1.weight"), "conv1", "bn1", stride=2), act)
    x = net.pixels("conv1.0.weight")
    for conv, norm, stride in (("conv1.0", "conv1.1", 2), ("conv1.3", "conv1.4", 1), ("conv1.6", "bn1", 1)):
        x = net.activate(conv_norm(net, x, conv, norm, stride=stride), act)
    return x


def _block(net: ImageNet, x: Value, name: str, stride: int) -> Value:
    """Two convolutions of 3 x 3, or one between two of 1 x 1 (bottleneck), added to the input."""
    act = net.config.inner_act
    y = x
    if net.has(f"{name}.conv3.weight"):
        first = stride if net.config.downsample_before else 1
        groups = net.channels(f"{name}.conv1") // net.kernel(f"{name}.conv2.weight").shape[1]
        y = net.activate(conv_norm(net, y, f"{name}.conv1", f"{name}.bn1", stride=first), act)
        y = conv_norm(net, y, f"{name}.conv2", f"{name}.bn2", stride=stride // first, groups=groups)
        y = conv_norm(net, net.activate(y, act), f"{name}.conv3", f"{name}.bn3")
    else:
        y = net.activate(conv_norm(net, y, f"{name}.conv1", f"{name}.bn1", stride=stride), act)
        y = conv_norm(net, y, f"{name}.conv2", f"{name}.bn2")
    if net.has(f"{name}.se.fc1.weight"):
        y = squeeze_excite(net, y, f"{name}.se.fc1", f"{name}.se.fc2")
    return net.activate(net.Add(y, _shortcut(net, x, f"{name}.downsample", stride)), net.config.act)


def _shortcut(net: ImageNet, x: Value, name: str, stride: int) -> Value:
    """The input with the channels and the size of the result."""
    if net.has(f"{name}.0.weight"):
        return conv_norm(net, x, f"{name}.0", f"{name}.1", stride=stride)
    if net.has(f"{name}.1.weight"):
        return conv_norm(net, average_pool(net, x) if stride > 1 else x, f"{name}.1", f"{name}.2")
    return x


ARCHITECTURES = (
    Architecture(
        "resnet",
        "ResNet",
        ("resnet",),
        ("resnet",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "fc")),
        implied=Implied(
            "resnet",
            r"(tv_|ssl_|swsl_|gluon_)?(wide_)?(se)?res(net|next)\d+[dst]?(_\w+)?",
            {TIMM: MARKS, TORCHVISION: MARKS},
            ("fc.weight",),
        ),
        settle=settle,
        prefixes=("resnet.",),
        ignored=(),
        modules=MODULES,
    ),
)
