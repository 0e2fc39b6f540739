"""VGG (Simonyan and Zisserman 2014, arXiv:1409.1556), with batch norms too."""

from __future__ import annotations

from ...runtime.contract.architecture import TIMM, TORCHVISION, Architecture, Config, Key
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import adaptive_pool, global_pool, max_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, ClassTask, Implied, image_act, settle_labels
from ..schema.weight_layout import Windows

SIDE = 7
"""Height and width of what the first dense layer sees."""
MODULES = (
    Module("features.{i}"),
    Module("pre_logits.fc1", torchvision="classifier.0", layout=Windows(SIDE)),
    Module("pre_logits.fc2", torchvision="classifier.3", layout=Windows(1)),
    Module("head.fc", torchvision="classifier.6"),
)
KEYS = (
    ClassTask("VGG"),
    *LABELS,
    Key("resized", (), "pools_to_window", lambda config: config.names == TORCHVISION, flag),
    image_act("relu"),
)
"""`resized`: whether features of larger images are averaged to 7 x 7, as torchvision does; timm slides the dense layers
over them and averages the results."""


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of labels from the weights."""
    settle_labels(config, weights, "head.fc.weight")


def features(net: ImageNet) -> Value:
    """[batch, channels, height / 32, width / 32]. Layers are numbered with activations and pooling between them, so
    that the distance of two convolutions tells whether there is pooling."""
    x = net.pixels("features.0.weight")
    last, i = -1, 0
    end = 2 + max(int(name.split(".")[1]) for name in net.weights if name.startswith("features."))
    while i < end:
        if not (net.has(f"features.{i}.weight") and len(net.tensor(f"features.{i}.weight").shape) == 4):
            i += 1
            continue
        normed = net.has(f"features.{i + 1}.running_mean")
        if last >= 0 and i - last > (3 if normed else 2):
            x = max_pool(net, x, 2, 2, 0)
        y = conv_norm(net, x, f"features.{i}", f"features.{i + 1}") if normed else conv(net, x, f"features.{i}")
        x, last, i = net.activate(y, net.config.act), i, i + 1
    return max_pool(net, x, 2, 2, 0)


def pool(net: ImageNet, x: Value) -> Value:
    """Two dense layers on windows of 7 x 7."""
    act = net.config.act
    x = adaptive_pool(net, x, SIDE, larger=not net.config.resized)
    x = net.activate(conv(net, x, "pre_logits.fc1", padding=0), act)
    return global_pool(net, net.activate(conv(net, x, "pre_logits.fc2"), act))


ARCHITECTURES = (
    Architecture(
        "vgg",
        "VGG",
        (),
        ("vgg",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "vgg",
            r"(tv_)?vgg\d+(_bn)?",
            {TORCHVISION: ("features.0.weight", "classifier.0.weight", "classifier.6.weight"),
             TIMM: ("features.0.weight", "pre_logits.fc1.weight")},
            ("head.fc.weight", "classifier.6.weight"),
        ),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)  # fmt: skip
