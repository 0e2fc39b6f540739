"""ControlNet (Zhang et al. 2023, arXiv:2302.05543): a copy of a UNet's way down that adds what a picture shows to its
skip connections; diffusers' ControlNetModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.contract.architecture import HF, MODEL, Architecture, Config, Key, Row, Task
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.diffusion.unet_encoder import conditions, descend, latents, middle
from ..layers.image.conv import conv
from ..layers.image.image_net import ImageNet
from ..pipelines.diffusion.control_network import DOWN, MIDDLE, PICTURE, SCALE, ControlNetwork
from ..pipelines.image.image_tasks import image_graph
from ..schema.diffusion.unet_keys import DEFAULTS, KEYS, TRANSFORMERS, check, refused
from ..schema.diffusion.unet_stages import (
    Shapes,
    check_layers,
    check_shapes,
    conv_shapes,
    down_stages,
    encoder_shapes,
    skip_channels,
)
from ..schema.network_hyperparameters import Stated

CLASS, NAME = "ControlNetModel", "controlnet"
CONTROLNET_KEYS: tuple[Row, ...] = (
    Stated("_class_name", CLASS),
    *KEYS,
    Key("picture_channels", "conditioning_channels", default=3, kind=Integer(1, 64)),
    Key("picture_widths", "conditioning_embedding_out_channels", default=[16, 32, 96, 256], kind=Listed(COUNT, 1, 16)),
    Key("channel_order", "controlnet_conditioning_channel_order", default="rgb", kind=Choice(("rgb", "bgr"))),
    Key("pooled", "global_pool_conditions", default=False, kind=flag),
    *refused(
        "encoder_hid_dim",
        "encoder_hid_dim_type",
        "mid_block_scale_factor",
        "num_attention_heads",
        "resnet_time_scale_shift",
    ),
)


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


def shapes(config: Config) -> Shapes:
    """Names and shapes of the weights."""
    yield from encoder_shapes(config)
    widths = config.picture_widths
    yield from conv_shapes(f"{EMBEDDING}.conv_in", config.picture_channels, widths[0], 3)
    for i, width in enumerate(widths[:-1]):
        yield from conv_shapes(f"{EMBEDDING}.blocks.{2 * i}", width, width, 3)
        yield from conv_shapes(f"{EMBEDDING}.blocks.{2 * i + 1}", width, widths[i + 1], 3)
    yield from conv_shapes(f"{EMBEDDING}.conv_out", widths[-1], config.widths[0], 3)
    for i, width in enumerate(skip_channels(config)):
        yield from conv_shapes(f"controlnet_down_blocks.{i}", width, width, 1)
    yield from conv_shapes("controlnet_mid_block", config.widths[-1], config.widths[-1], 1)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Check that values fit each other and the shapes of the weights."""
    check(config)
    check_layers(config, down_stages(config), TRANSFORMERS)
    check_shapes(shapes(config), weights, config.values.get("path"))


EMBEDDING = "controlnet_cond_embedding"


def control(net: ImageNet) -> None:
    """Residuals for a UNet: ``down_block_res_samples.0`` and so on for its skip connections, and the middle's
    ``mid_block_res_sample``, from latents ``sample`` f32 [batch, in_channels, height, width] and a picture
    ``controlnet_cond`` f32 [batch, channels, f x height, f x width], f being 2 to the power of the strided convolutions
    of its embedding.

    ``conditioning_scale`` f32 [residuals] has a factor for each of them, 1 if it is left out. For further inputs see
    `conditions`.
    """
    sample = latents(net)
    condition = conditions(net)
    channels = net.config.picture_channels
    picture = net.input(PICTURE, "f32", ("batch", channels, "picture_height", "picture_width"))
    x = net.Add(conv(net, sample, "conv_in"), embedded_picture(net, picture))
    x, skips = descend(net, x, condition)
    x = middle(net, x, condition)
    names = [f"controlnet_down_blocks.{i}" for i in range(len(skips))]
    residuals = [conv(net, y, name) for y, name in zip((*skips, x), (*names, "controlnet_mid_block"), strict=True)]
    ones = np.ones(len(residuals), np.float32)
    factors = net.split(net.optional_input(SCALE, ones, (len(residuals),)), [1] * len(residuals), axis=0)
    outputs = (*(f"{DOWN}.{i}" for i in range(len(skips))), MIDDLE)
    for name, residual, factor in zip(outputs, residuals, factors, strict=True):
        scaled = net.Mul(residual, factor)
        net.output(name, net.ReduceMean(scaled, [2, 3]) if net.config.pooled else scaled)


def embedded_picture(net: ImageNet, picture: Value) -> Value:
    """The picture at the size of the latents, as features of the UNet's first stage."""
    if net.config.channel_order == "bgr":
        picture = net.Slice(picture, [-1], [-(2**31)], [1], [-1])
    x = net.activate(conv(net, picture, f"{EMBEDDING}.conv_in"), "silu")
    for i in range(2 * len(net.config.picture_widths) - 2):
        x = net.activate(conv(net, x, f"{EMBEDDING}.blocks.{i}", stride=1 + i % 2, padding=1), "silu")
    return conv(net, x, f"{EMBEDDING}.conv_out")


MODULES = (
    "conv_in",
    "time_embedding",
    "class_embedding",
    "add_embedding",
    "down_blocks",
    "mid_block",
    EMBEDDING,
    "controlnet_down_blocks",
    "controlnet_mid_block",
)
ARCHITECTURES = (
    Architecture(
        NAME,
        "ControlNet",
        (),
        (),
        CONTROLNET_KEYS,
        (),
        (Task("control", {MODEL: image_graph(control)}, ControlNetwork),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, MODULES)),
        defaults={NAME: DEFAULTS},
    ),
)
