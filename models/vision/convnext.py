"""ConvNeXt (Liu et al. 2022, arXiv:2201.03545) and ConvNeXt V2 (Woo et al. 2023, arXiv:2301.00808)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import TIMM, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, pointwise
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import (
    LABELS,
    STAGES,
    WIDTHS,
    ClassTask,
    Implied,
    depths_of,
    image_act,
    norm_eps,
    settle_labels,
)
from ..schema.weight_layout import Expanded

BLOCK, THEIRS = "stages.{s}.blocks.{b}.", "encoder.stages.{s}.layers.{b}."
MODULES = (
    Module("stem.0", hf="embeddings.patch_embeddings"),
    Module("stem.1", hf="embeddings.layernorm"),
    Module("stem.{i}", hf=()),
    Module("stages.{s}.downsample.{i}", hf="encoder.stages.{s}.downsampling_layer.{i}"),
    Module(f"{BLOCK}conv_dw", hf=f"{THEIRS}dwconv"),
    Module(f"{BLOCK}norm", hf=f"{THEIRS}layernorm"),
    Module(f"{BLOCK}mlp.fc1", hf=f"{THEIRS}pwconv1"),
    Module(f"{BLOCK}mlp.fc2", hf=f"{THEIRS}pwconv2"),
    Module(f"{BLOCK}mlp.grn", hf=f"{THEIRS}grn", layout=Expanded(4)),
    Module(f"{BLOCK}gamma", hf=f"{THEIRS}layer_scale_parameter"),
    Module("norm_pre", hf=()),
    Module("head.norm", hf="layernorm"),
    Module("head.pre_logits.fc", hf=()),
    Module("head.fc", hf="classifier"),
)
GRN_EPS = 1e-6


def keys(stem: str) -> tuple[Any, ...]:
    """The rows of models whose classes in transformers begin with `stem`."""
    return (
        ClassTask(stem),
        *LABELS,
        Key("depths", "depths", "depths", None, STAGES),
        Key("widths", "hidden_sizes", "widths", None, WIDTHS),
        Key("patch", "patch_size", "patch_size", None, COUNT),
        Key("block_eps", (), "block_norm_epsilon", 1e-6, NOT_NEGATIVE),
        norm_eps(1e-12, "layer_norm_eps"),
        image_act("gelu"),
    )


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The epsilon of timm's norms."""
    epsilon = 1e-5 if "xxlarge" in name else 1e-6
    return {"eps": epsilon, "block_eps": epsilon}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take depths and widths from the weights."""
    settle_labels(config, weights, "head.fc.weight")
    depths = depths_of(weights, f"{BLOCK}conv_dw.weight")
    widths = [weights[f"stages.{s}.blocks.0.conv_dw.weight"].shape[0] for s in range(len(depths))]
    patch = weights["stem.0.weight"].shape[-1] if "stem.0.weight" in weights else None
    config.values |= {"depths": depths, "widths": widths, "patch": patch}


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    config = net.config
    x = _stem(net)
    for s, depth in enumerate(config.depths):
        down = f"stages.{s}.downsample"
        if net.has(f"{down}.1.weight"):
            x = conv(net, _norm(net, x, f"{down}.0", config.block_eps), f"{down}.1", stride=2, padding=0)
        for b in range(depth):
            x = _block(net, x, f"stages.{s}.blocks.{b}")
    return _norm(net, x, "norm_pre", config.eps) if net.has("norm_pre.weight") else x


def _stem(net: ImageNet) -> Value:
    """Patches, or two convolutions of 3 x 3."""
    epsilon, x = net.config.block_eps, net.pixels("stem.0.weight")
    size = net.kernel("stem.0.weight").shape[-1]
    if size != 3:
        return _norm(net, conv(net, x, "stem.0", stride=size, padding=0), "stem.1", epsilon)
    x = conv(net, x, "stem.0", stride=2)
    if net.has("stem.3.weight"):
        return _norm(net, conv(net, net.activate(x, net.config.act), "stem.2", stride=2), "stem.3", epsilon)
    return _norm(net, conv(net, x, "stem.1", stride=2), "stem.2", epsilon)


def _norm(net: ImageNet, x: Value, name: str, epsilon: float) -> Value:
    """Layer norm over the channels of an image."""
    return net.channels_first(layer_norm(net, net.channels_last(x), name, epsilon))


def _block(net: ImageNet, x: Value, name: str) -> Value:
    """Depthwise convolution, norm and feed-forward network, added to the input."""
    y = net.channels_last(conv(net, x, f"{name}.conv_dw", groups=0))
    y = pointwise(net, layer_norm(net, y, f"{name}.norm", net.config.block_eps), f"{name}.mlp.fc1")
    y = net.activate(y, net.config.act)
    if net.has(f"{name}.mlp.grn.weight"):
        y = _response_norm(net, y, f"{name}.mlp.grn")
    y = pointwise(net, y, f"{name}.mlp.fc2")
    if net.has(f"{name}.gamma"):
        y = net.Mul(y, net.vector(f"{name}.gamma"))
    value: Value = net.Add(net.channels_first(y), x)
    return value


def _response_norm(net: ImageNet, x: Value, name: str) -> Value:
    """Global response norm of [batch, height, width, channels]: channels by their energy in the image, relative to the
    mean of all channels."""
    energy = net.ReduceL2(x, [1, 2], keepdims=1)
    relative = net.Div(energy, net.Add(net.ReduceMean(energy, [-1], keepdims=1), GRN_EPS))
    y: Value = net.Add(
        x, net.Add(net.Mul(net.Mul(x, relative), net.vector(f"{name}.weight")), net.vector(f"{name}.bias"))
    )
    return y


def pool(net: ImageNet, x: Value) -> Value:
    """The normalized means of the channels."""
    y = global_pool(net, x)
    y = layer_norm(net, y, "head.norm", net.config.eps) if net.has("head.norm.weight") else y
    if net.has("head.pre_logits.fc.weight"):
        return net.activate(linear(net, y, "head.pre_logits.fc"), "gelu")
    return y


def _architecture(name: str, title: str, stem: str, timm: str) -> Architecture:
    marks = ("stem.0.weight", "stages.0.blocks.0.conv_dw.weight", "stages.0.blocks.0.mlp.fc1.weight")
    own = "stages.0.blocks.0.mlp.grn.weight" if name.endswith("v2") else "stages.0.blocks.0.gamma"
    return Architecture(
        name,
        title,
        (name,),
        (name,),
        keys(stem),
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(name, timm, {TIMM: (*marks, own)}, ("head.fc.weight",), settings),
        settle=settle,
        prefixes=(f"{name}.",),
        ignored=(),
        modules=MODULES,
    )


ARCHITECTURES = (
    _architecture("convnext", "ConvNeXt", "ConvNext", r"convnext_(?!.*rms)\w+"),
    _architecture("convnextv2", "ConvNeXt V2", "ConvNextV2", r"convnextv2_\w+"),
)
