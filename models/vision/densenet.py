"""DenseNet (Huang et al. 2016, arXiv:1608.06993)."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, TORCHVISION, Architecture
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import batch_norm, conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import average_pool, global_pool, max_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, settled_stages

MODULES = (
    Module("features.conv{i}"),
    Module("features.norm{i}"),
    Module("features.denseblock{s+1}.denselayer{b+1}"),
    Module("features.transition{s+1}"),
    Module("classifier"),
)
MARKS = ("features.conv0.weight", "features.denseblock1.denselayer1.conv1.weight")
KEYS = (ClassTask("DenseNet"), *LABELS, DEPTHS, image_act("relu"))


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]: the results of all layers of a block next to its input."""
    act = net.config.act
    x = net.pixels("features.conv0.weight")
    x = net.activate(conv_norm(net, x, "features.conv0", "features.norm0", stride=2), act)
    for i in (1, 2):
        if net.has(f"features.conv{i}.weight"):
            x = net.activate(conv_norm(net, x, f"features.conv{i}", f"features.norm{i}"), act)
    x = max_pool(net, x)
    for s, depth in enumerate(net.config.depths):
        for b in range(depth):
            name = f"features.denseblock{s + 1}.denselayer{b + 1}"
            y = net.activate(batch_norm(net, x, f"{name}.norm1"), act)
            y = net.activate(conv_norm(net, y, f"{name}.conv1", f"{name}.norm2"), act)
            x = net.Concat(x, conv(net, y, f"{name}.conv2"), axis=1)
        name = f"features.transition{s + 1}"
        if net.has(f"{name}.conv.weight"):
            y = conv(net, net.activate(batch_norm(net, x, f"{name}.norm"), act), f"{name}.conv")
            x = average_pool(net, y, whole=False)
    return net.activate(batch_norm(net, x, "features.norm5"), act)


ARCHITECTURES = (
    Architecture(
        "densenet",
        "DenseNet",
        (),
        ("densenet",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "classifier")),
        implied=Implied(
            "densenet", r"(tv_)?densenet(?!blur)\w+", {TIMM: MARKS, TORCHVISION: MARKS}, ("classifier.weight",)
        ),
        settle=settled_stages("classifier.weight", "features.denseblock{s+1}.denselayer{b+1}.conv1.weight"),
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
