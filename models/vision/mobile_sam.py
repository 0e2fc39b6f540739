"""MobileSAM (Zhang et al. 2023, arXiv:2306.14289): Segment Anything whose images TinyViT encodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Config, Key, Row
from ...runtime.contract.hyperparameter import Integer
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..schema.network_hyperparameters import DEPTHS, MASK_GENERATION, ClassTask, Nested, depths_of, image_act, norm_eps
from .sam import DECODER_KEYS, GAUSSIAN, PROMPT_KEYS, SHARED, decoder_sizes, mask_generation, neck, stated
from .tiny_vit import BLOCKS, stages

PREFIX, BLOCK = "image_encoder.", "stages.{s}.blocks.{b}."
PATCH, SIDE = 16, 1024
"""Pixels of an edge of a position of the embeddings, and of a prepared image."""
KEPT = (320, 448, 576)
"""Channels of stages that begin without halving the image."""


def _convolution(own: str, theirs: str) -> tuple[Module, Module]:
    """A convolution and its batch norm."""
    return (
        Module(f"{PREFIX}{own}.conv", timm=f"{PREFIX}{theirs}.c"),
        Module(f"{PREFIX}{own}.bn", timm=f"{PREFIX}{theirs}.bn"),
    )


MODULES = (
    *_convolution("patch_embed.conv1", "patch_embed.seq.0"),
    *_convolution("patch_embed.conv2", "patch_embed.seq.2"),
    *(
        part
        for k in (1, 2, 3)
        for part in (
            *_convolution(f"stages.{{s+1}}.downsample.conv{k}", f"layers.{{s}}.downsample.conv{k}"),
            *_convolution(f"{BLOCK}conv{k}", f"layers.{{s}}.blocks.{{b}}.conv{k}"),
        )
    ),
    *_convolution(f"{BLOCK}local_conv", "layers.{s}.blocks.{b}.local_conv"),
    Module(f"{PREFIX}stages.{{s}}", timm=f"{PREFIX}layers.{{s}}"),
    *SHARED,
)
KEYS: tuple[Row, ...] = (
    ClassTask("MobileSam", (("Model", MASK_GENERATION),)),
    DEPTHS,
    norm_eps(1e-5),
    image_act("gelu"),
    Key("side", (), "image_size", SIDE, Integer(1, 1 << 16)),
    Key("patch", (), "patch_size", PATCH, Integer(1, 1 << 16)),
    *(Nested("prompt_encoder_config", row) for row in PROMPT_KEYS),
    *(Nested("mask_decoder_config", row) for row in DECODER_KEYS),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    side, patch = config.side, config.patch
    config.values |= {
        "depths": depths_of(weights, *(PREFIX + block for block in BLOCKS)),
        "grid": side // patch,
        "prompt_side": side,
        "prompt_patch": patch,
        **decoder_sizes(weights),
    }


def encode_image(net: ImageNet) -> None:
    """As of `sam`."""
    side = net.config.side
    channels = net.kernel(f"{PREFIX}patch_embed.conv1.conv.weight").shape[1]
    neck(net, stages(net, net.input("pixel_values", "f32", ("batch", channels, side, side)), PREFIX, KEPT))


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The original repository's checkpoints, by the names of weights."""
    if GAUSSIAN not in graph.weights or f"{PREFIX}patch_embed.seq.0.c.weight" not in graph.weights:
        return None
    return stated("mobile_sam", {"side": "img_size"}, source)


ARCHITECTURES = (
    Architecture(
        "mobile_sam",
        "MobileSAM",
        (),
        ("mobile_sam",),
        KEYS,
        (),
        (mask_generation(encode_image),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=(r"^image_encoder\.(head|norm_head)\.", "attention_bias_idxs$", "^pixel_(mean|std)$"),
        modules=MODULES,
    ),
)
