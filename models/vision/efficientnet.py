"""EfficientNet (Tan and Le 2019, arXiv:1905.11946), EfficientNetV2 (arXiv:2104.00298) and MobileNetV2
(arXiv:1801.04381)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import TIMM, TORCHVISION, Architecture, Key
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ..layers.image.efficientnet import B0, features
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import LABELS, STAGES, ClassTask, Implied, image_act, norm_eps, settle_classifier

FIRST, BLOCK = "features.1.{b}.block.", "features.{s+1}.{b}.block."
MODULES = (
    Module("conv_stem", torchvision="features.0.0"),
    Module("bn1", torchvision="features.0.1"),
    Module("blocks.0.{b}.conv_dw", torchvision=f"{FIRST}0.0"),
    Module("blocks.0.{b}.bn1", torchvision=f"{FIRST}0.1"),
    Module("blocks.0.{b}.se.conv_reduce", torchvision=f"{FIRST}1.fc1"),
    Module("blocks.0.{b}.se.conv_expand", torchvision=f"{FIRST}1.fc2"),
    Module("blocks.0.{b}.conv_pw", torchvision=f"{FIRST}2.0"),
    Module("blocks.0.{b}.bn2", torchvision=f"{FIRST}2.1"),
    Module("blocks.{s}.{b}.conv_pw", torchvision=f"{BLOCK}0.0"),
    Module("blocks.{s}.{b}.bn1", torchvision=f"{BLOCK}0.1"),
    Module("blocks.{s}.{b}.conv_dw", torchvision=f"{BLOCK}1.0"),
    Module("blocks.{s}.{b}.bn2", torchvision=f"{BLOCK}1.1"),
    Module("blocks.{s}.{b}.se.conv_reduce", torchvision=f"{BLOCK}2.fc1"),
    Module("blocks.{s}.{b}.se.conv_expand", torchvision=f"{BLOCK}2.fc2"),
    Module("blocks.{s}.{b}.conv_pwl", torchvision=f"{BLOCK}3.0"),
    Module("blocks.{s}.{b}.bn3", torchvision=f"{BLOCK}3.1"),
    Module("blocks.{s}.{b}.conv_exp", torchvision=()),
    Module("blocks.{s}.{b}.conv", torchvision=()),
    Module("conv_head", torchvision="features.8.0"),
    Module("bn2", torchvision="features.8.1"),
    Module("classifier", torchvision="classifier.1"),
)
V2 = [1, 2, 2, 2, 1, 2]
"""Strides of the stages of EfficientNetV2."""
KEYS = (
    ClassTask("EfficientNet"),
    *LABELS,
    Key("strides", (), "strides", B0, STAGES),
    Key("same", (), "same_padding", False, flag),
    norm_eps(1e-5),
    image_act("silu"),
)


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """TensorFlow's padding and epsilon (``tf_``), strides and activation of timm's models."""
    tf = {"same": True, "eps": 1e-3} if name.startswith("tf_") else {}
    act = "relu6" if "lite" in name or name.startswith("mobilenetv2") else "silu"
    return {**tf, "act": act, "strides": V2 if "netv2_" in name and "efficient" in name else B0}


ARCHITECTURES = (
    Architecture(
        "efficientnet",
        "EfficientNet",
        (),
        ("efficientnet",),
        KEYS,
        (),
        image_tasks(features, global_pool, lambda net, x: linear(net, x, "classifier")),
        implied=Implied(
            "efficientnet",
            r"(tf_)?(efficientnet_(b|l|lite)\d+|efficientnetv2_\w+|mobilenetv2_\w+)\w*",
            {
                TORCHVISION: ("features.0.0.weight", "features.1.0.block.0.0.weight", "features.8.0.weight"),
                TIMM: ("conv_stem.weight", "blocks.0.0.bn1.weight", "bn2.running_mean"),
            },
            ("classifier.weight", "classifier.1.weight"),
            settings,
        ),
        settle=settle_classifier,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
