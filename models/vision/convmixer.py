"""ConvMixer (Trockman and Kolter 2022, arXiv:2201.09792)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import TIMM, Architecture, Config
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import batch_norm, conv
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, ClassTask, Implied, count_of, image_act, settle_labels

MODULES = (Module("stem.{i}"), Module("blocks.{i}"), Module("head"))
KEYS = (ClassTask("ConvMixer"), *LABELS, image_act("gelu"))


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The activation: GELU, but for one model."""
    return {"act": arguments.get("act_layer") or ("relu" if name == "convmixer_768_32" else "gelu")}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the depth from the weights."""
    settle_labels(config, weights, "head.weight")
    config.values["layers"] = count_of(weights, "blocks.{i}.1.weight")


def features(net: ImageNet) -> Value:
    """Patches, then layers mixing positions (depthwise convolution) and channels, [batch, channels, rows, columns]."""
    size = net.kernel("stem.0.weight").shape[-1]
    x = _normed(net, conv(net, net.pixels("stem.0.weight"), "stem.0", stride=size, padding=0), "stem.2")
    for i in range(net.config.layers):
        name = f"blocks.{i}"
        x = net.Add(_normed(net, conv(net, x, f"{name}.0.fn.0", groups=0), f"{name}.0.fn.2"), x)
        x = _normed(net, conv(net, x, f"{name}.1"), f"{name}.3")
    return x


def _normed(net: ImageNet, x: Value, norm: str) -> Value:
    return batch_norm(net, net.activate(x, net.config.act), norm)


ARCHITECTURES = (
    Architecture(
        "convmixer",
        "ConvMixer",
        (),
        ("convmixer",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "head")),
        implied=Implied(
            "convmixer",
            r"convmixer_\w+",
            {TIMM: ("stem.0.weight", "blocks.0.0.fn.0.weight")},
            ("head.weight",),
            settings,
        ),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
