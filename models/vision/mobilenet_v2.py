"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381) under the names of transformers and torchvision; timm's is an
EfficientNet."""

from __future__ import annotations

from ...runtime.contract.architecture import TORCHVISION, Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, Integer, Real, flag
from ...runtime.contract.naming import Module
from ..layers.image.efficientnet import B0, features
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, STAGES, ClassTask, Implied, image_act, norm_eps, settle_classifier

DEPTHS = (2, 3, 4, 3, 3, 1)
"""Inverted residual blocks of each stage, after the first one."""
CONVOLUTIONS = (
    ("conv_pw", "bn1", "expand_1x1", ("0.0", "0.1")),
    ("conv_dw", "bn2", "conv_3x3", ("1.0", "1.1")),
    ("conv_pwl", "bn3", "reduce_1x1", ("2", "3")),
)
"""Names in a block: convolution and batch norm, in transformers and in torchvision."""
MARKS = ("features.0.0.weight", "features.1.conv.0.0.weight", "features.18.0.weight")


def _normed(own: str, norm: str, hf: str, torchvision: tuple[str, str]) -> tuple[Module, Module]:
    conv, batch_norm = torchvision
    return (
        Module(own, hf=f"{hf}.convolution", torchvision=conv),
        Module(norm, hf=f"{hf}.normalization", torchvision=batch_norm),
    )


def _within(block: int, names: tuple[str, str]) -> tuple[str, str]:
    """Names in a block of torchvision."""
    return f"features.{block}.conv.{names[0]}", f"features.{block}.conv.{names[1]}"


def _blocks() -> tuple[Module, ...]:
    """The modules of the blocks, which transformers and torchvision count through all stages."""
    places = [(s, b) for s, depth in enumerate(DEPTHS, 1) for b in range(depth)]
    return tuple(
        part
        for i, (s, b) in enumerate(places)
        for conv, norm, hf, names in CONVOLUTIONS
        for part in _normed(
            f"blocks.{s}.{b}.{conv}", f"blocks.{s}.{b}.{norm}", f"layer.{i}.{hf}", _within(i + 2, names)
        )
    )


MODULES = (
    *_normed("conv_stem", "bn1", "conv_stem.first_conv", ("features.0.0", "features.0.1")),
    *_normed("blocks.0.0.conv_dw", "blocks.0.0.bn1", "conv_stem.conv_3x3", _within(1, ("0.0", "0.1"))),
    *_normed("blocks.0.0.conv_pw", "blocks.0.0.bn2", "conv_stem.reduce_1x1", _within(1, ("1", "2"))),
    *_blocks(),
    *_normed("conv_head", "bn2", "conv_1x1", ("features.18.0", "features.18.1")),
    Module("classifier", torchvision="classifier.1"),
)
KEYS = (
    ClassTask("MobileNetV2"),
    *LABELS,
    Key("strides", (), "strides", B0, STAGES),
    Key("same", "tf_padding", "same_padding", True, flag),
    norm_eps(0.001, "layer_norm_eps"),
    image_act("relu6"),
    Key("multiplier", "depth_multiplier", "depth_multiplier", 1.0, Real(0, 64, above=True)),
    Key("divisor", "depth_divisible_by", "depth_divisor", 8, COUNT),
    Key("least", "min_depth", "depth_minimum", 8, COUNT),
    Key("expansion", "expand_ratio", "expand_ratio", 6.0, Real(0, 64, above=True)),
    Key("fine", "finegrained_output", "finegrained_output", True, flag),
    Key("output_stride", "output_stride", "output_stride", 32, Integer(32, 32)),
)
"""From `multiplier` on they only say how transformers finds the sizes that the weights have."""
ARCHITECTURES = (
    Architecture(
        "mobilenet_v2",
        "MobileNetV2",
        ("mobilenet_v2",),
        ("mobilenet_v2",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "classifier")),
        implied=Implied(
            "mobilenet_v2",
            "",
            {TORCHVISION: MARKS},
            ("classifier.1.weight",),
            lambda name, arguments: {"same": False, "eps": 1e-5},
        ),
        settle=settle_classifier,
        prefixes=("mobilenet_v2.",),
        ignored=(),
        modules=MODULES,
    ),
)
