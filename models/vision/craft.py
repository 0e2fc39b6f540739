"""CRAFT (Baek et al. 2019, arXiv:1904.01941): detection of text by scores of characters and of their affinity."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL, TIMM, Architecture, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ..layers.image.conv import conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import max_pool
from ..layers.image.resize import bilinear, size_of
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import TEXT_DETECTION, ClassTask, Implied

SLICES = ((0, 3, 7, 10), (14, 17), (20, 24, 27), (30, 34, 37))
"""Convolutions of VGG-16 in each slice, by torchvision's numbers; a batch norm follows each."""
POOLED = (7, 14, 24, 34)
"""Convolutions that pooling precedes."""
DILATION = 6
"""Dilation of the convolution that stands for the first dense layer."""
UPWARD, SCORES = ("upconv1", "upconv2", "upconv3", "upconv4"), (0, 2, 4, 6, 8)
MARKS = ("basenet.slice1.0.weight", "basenet.slice5.1.weight", "upconv4.conv.0.weight", "conv_cls.8.weight")
MODULES = (Module("basenet"), *map(Module, UPWARD), Module("conv_cls"))


def trunk(net: ImageNet) -> list[Value]:
    """Features of an image: a 2nd, 4th, 8th and twice a 16th of its height and width."""
    x = net.pixels("basenet.slice1.0.weight")
    found = []
    for number, places in enumerate(SLICES, 1):
        for i in places:
            x = max_pool(net, x, 2, 2, 0) if i in POOLED else x
            x = conv_norm(net, x, f"basenet.slice{number}.{i}", f"basenet.slice{number}.{i + 1}")
            x = x if i == SLICES[-1][-1] else net.Relu(x)
        found.append(x)
    x = conv(net, max_pool(net, x, 3, 1, 1), "basenet.slice5.1", padding=DILATION, dilation=DILATION)
    return [*found, conv(net, x, "basenet.slice5.2")]


def detected(net: ImageNet) -> None:
    """``region_score`` and ``affinity_score`` [batch, height / 2, width / 2]: how probable the center of a character,
    and the middle between two characters of a word, is."""
    *finer, x = trunk(net)
    for number, (name, skip) in enumerate(zip(UPWARD, reversed(finer), strict=True)):
        x = x if number == 0 else bilinear(net, x, size_of(net, skip))
        x = net.Concat(x, skip, axis=1)
        for i in (0, 3):
            x = net.Relu(conv_norm(net, x, f"{name}.conv.{i}", f"{name}.conv.{i + 1}"))
    for i in SCORES:
        x = conv(net, x if i == 0 else net.Relu(x), f"conv_cls.{i}")
    for name, score in zip(("region_score", "affinity_score"), net.split(x, [1, 1], axis=1), strict=True):
        net.output(name, net.Squeeze(score, [1]))


ARCHITECTURES = (
    Architecture(
        "craft",
        "CRAFT",
        (),
        ("craft",),
        (ClassTask("Craft", (("Model", TEXT_DETECTION),)),),
        (),
        (Task(TEXT_DETECTION, {MODEL: image_graph(detected)}, run_image_model),),
        implied=Implied("craft", r"craft\w*", {TIMM: MARKS}, (), task=TEXT_DETECTION, prefixes=("module.",)),
        prefixes=("module.",),
        ignored=(),
        modules=MODULES,
    ),
)
