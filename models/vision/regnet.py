"""RegNet (Radosavovic et al. 2020, arXiv:2003.13678)."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, Architecture
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool, squeeze_excite
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, settled_stages

MODULES = (Module("stem"), Module("s{s+1}.b{b+1}"), Module("head.fc"))
KEYS = (ClassTask("RegNet"), *LABELS, DEPTHS, image_act("relu"))


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    x = net.activate(_conv(net, net.pixels("stem.conv.weight"), "stem", 2), net.config.act)
    for s, depth in enumerate(net.config.depths):
        for b in range(depth):
            x = _block(net, x, f"s{s + 1}.b{b + 1}", 1 if b else 2)
    return x


def _conv(net: ImageNet, x: Value, name: str, stride: int = 1, groups: int = 1) -> Value:
    return conv_norm(net, x, f"{name}.conv", f"{name}.bn", stride=stride, groups=groups)


def _block(net: ImageNet, x: Value, name: str, stride: int) -> Value:
    """A convolution of 3 x 3 in groups between two of 1 x 1, added to the input."""
    act = net.config.act
    groups = net.channels(f"{name}.conv1.conv") // net.kernel(f"{name}.conv2.conv.weight").shape[1]
    y = net.activate(_conv(net, x, f"{name}.conv1"), act)
    y = net.activate(_conv(net, y, f"{name}.conv2", stride, groups), act)
    if net.has(f"{name}.se.fc1.weight"):
        y = squeeze_excite(net, y, f"{name}.se.fc1", f"{name}.se.fc2", act=act)
    y = _conv(net, y, f"{name}.conv3")
    down = f"{name}.downsample"
    shortcut = _conv(net, x, down, stride) if net.has(f"{down}.conv.weight") else x
    return net.activate(net.Add(y, shortcut), act)


ARCHITECTURES = (
    Architecture(
        "regnet",
        "RegNet",
        (),
        ("regnet",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "regnet",
            r"regnet[xy]_(?!\w*sgn)\w+",
            {TIMM: ("stem.conv.weight", "s1.b1.conv1.conv.weight")},
            ("head.fc.weight",),
        ),
        settle=settled_stages("head.fc.weight", "s{s+1}.b{b+1}.conv1.conv.weight"),
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
