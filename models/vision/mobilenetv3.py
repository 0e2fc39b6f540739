"""MobileNetV3 (Howard et al. 2019, arXiv:1905.02244) and MobileNetV4 (Qin et al. 2024, arXiv:2404.10518)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import Integer, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, conv_norm, convolve
from ..layers.image.efficientnet import mobile_stages
from ..layers.image.image_net import ImageNet
from ..layers.image.inverted_residual import Style
from ..layers.image.kernels import normed_kernel
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, STAGES, ClassTask, Implied, image_act, norm_eps, settle_labels

MODULES = (
    Module("conv_stem"),
    Module("bn1"),
    Module("blocks.{s}.{b}"),
    Module("conv_head"),
    Module("norm_head"),
    Module("classifier"),
)
LARGE, SMALL, V4 = [1, 2, 2, 2, 1, 2, 1], [2, 2, 2, 1, 2, 1], [2, 2, 2, 2, 1]
KEYS = (
    ClassTask("MobileNetV3"),
    *LABELS,
    Key("strides", (), "strides", LARGE, STAGES),
    Key("plain_stages", (), "relu_stages", 0, Integer(0, 16)),
    Key("same", (), "same_padding", False, flag),
    norm_eps(1e-5),
    image_act("hard_swish"),
)
"""`plain_stages`: how many of the first stages have ReLU."""


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Strides and activations by timm's name; TensorFlow's padding and epsilon (``tf_``)."""
    tf = {"same": True, "eps": 1e-3} if name.startswith("tf_") else {}
    if "v4" in name:
        return {"strides": V4, "act": "gelu" if "hybrid_large" in name else "relu"}
    small = "small" in name
    act = "relu" if "minimal" in name else "hard_swish"
    return {**tf, "strides": SMALL if small else LARGE, "plain_stages": 2 if small else 3, "act": act}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of labels from the weights."""
    settle_labels(config, weights, "classifier.weight")


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    config = net.config
    gates = {"gate": "hard_sigmoid", "gate_act": "relu", "same": config.same, "epsilon": config.eps}
    styles = [Style("relu" if s < config.plain_stages else config.act, **gates) for s in range(len(config.strides))]
    x = net.pixels("conv_stem.weight")
    x = conv_norm(net, x, "conv_stem", "bn1", stride=2, padding=styles[0].padding, epsilon=config.eps)
    return mobile_stages(net, net.activate(x, config.act), net.channels("conv_stem"), styles)


def pool(net: ImageNet, x: Value) -> Value:
    """The means of the channels, through one more layer."""
    x = net.GlobalAveragePool(x)
    if net.has("norm_head.weight"):
        x = convolve(net, x, "conv_head", normed_kernel(net, "conv_head", "norm_head", net.config.eps))
    else:
        x = conv(net, x, "conv_head")
    y: Value = net.Flatten(net.activate(x, net.config.act), axis=1)
    return y


ARCHITECTURES = (
    Architecture(
        "mobilenetv3",
        "MobileNetV3 and V4",
        (),
        ("mobilenetv3",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "classifier")),
        implied=Implied("mobilenetv3", r"(tf_)?mobilenetv[34]_\w+", {}, ("classifier.weight",), settings),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
