"""RepVGG (Ding et al. 2021, arXiv:2101.03697) and MobileOne (Vasu et al. 2022, arXiv:2206.04040): branches of training
that are one convolution in inference."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, Architecture
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.branches import branch_channels, branched_conv
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import DEPTHS, LABELS, ClassTask, Implied, image_act, settled_stages

MODULES = (Module("stem"), Module("stages.{s}.{b}"), Module("head.fc"))
KEYS = (ClassTask("RepVGG"), *LABELS, DEPTHS, image_act("relu"))
FIRST = ("conv_kxk.conv.weight", "conv_kxk.0.conv.weight", "reparam_conv.weight")


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]."""
    first = next((f"stem.{end}" for end in FIRST if net.has(f"stem.{end}")), f"stem.{FIRST[0]}")
    x = net.pixels(first)
    blocks = [("stem", 2)]
    blocks += [(f"stages.{s}.{b}", 1 if b else 2) for s, depth in enumerate(net.config.depths) for b in range(depth)]
    channels = net.kernel(first).shape[1]
    for name, stride in blocks:
        x = branched_conv(net, x, channels, name, stride, net.config.act)
        channels = branch_channels(net, name)
    return x


def _architecture(name: str, title: str, timm: str, mark: str) -> Architecture:
    return Architecture(
        name,
        title,
        (),
        (name,),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(name, timm, {TIMM: (f"stem.{mark}", f"stages.0.0.{mark}")}, ("head.fc.weight",)),
        settle=settled_stages("head.fc.weight", *(f"stages.{{s}}.{{b}}.{end}" for end in FIRST)),
        prefixes=(),
        ignored=(),
        modules=MODULES,
    )


ARCHITECTURES = (
    _architecture("repvgg", "RepVGG", r"repvgg_\w+", FIRST[0]),
    _architecture("mobileone", "MobileOne", r"mobileone_\w+", FIRST[1]),
)
