"""MobileCLIP's image encoder (Vasu et al. 2023, arXiv:2311.17049): FastViT whose head projects to the space that
pictures and texts share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import MODEL, TIMM, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import global_pool
from ..layers.linear import linear
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import DEPTHS, IMAGE_FEATURES, ClassTask, depths_of, image_act, norm_eps
from . import fastvit

TRUNK = "visual.trunk."
MARKS = ("stem.0.conv_kxk.0.conv.weight", "stem.0.reparam_conv.weight")
"""Weights of FastViT's first layer, in training and in inference."""
KEYS = (
    ClassTask("MobileClip", (("Model", IMAGE_FEATURES),)),
    DEPTHS,
    Key("activates_patches", (), "activates_patches", True, flag),
    norm_eps(1e-5),
    image_act("gelu"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take depths from the weights."""
    config.values["depths"] = depths_of(weights, fastvit.BLOCK)


def encode_image(net: ImageNet) -> None:
    """``last_hidden_state`` [batch, channels, height / 64, width / 64], and ``image_embeds`` [batch, width] of length
    1."""
    x = fastvit.features(net)
    net.output("last_hidden_state", x)
    net.output("image_embeds", net.LpNormalization(linear(net, global_pool(net, x), "head.fc"), axis=1, p=2))


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """OpenCLIP's checkpoints without the text tower, by the names of weights."""
    if "text.text_projection" in graph.weights:
        return None
    if f"{TRUNK}head.fc.weight" not in graph.weights or not any(TRUNK + mark in graph.weights for mark in MARKS):
        return None
    return TIMM, {"general.architecture": "mobileclip", "task": IMAGE_FEATURES}


ARCHITECTURES = (
    Architecture(
        "mobileclip",
        "MobileCLIP",
        (),
        ("mobileclip",),
        KEYS,
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(encode_image)}, run_image_model, aliases=("feature-extraction",)),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=(r"^text\.", "^logit_(scale|bias)$"),
        modules=tuple(Module(part.name, timm=TRUNK + part.name) for part in fastvit.MODULES),
    ),
)
