"""The denoising UNet of Stable Diffusion 1, 2 and XL (Rombach et al. 2022, arXiv:2112.10752; Podell et al. 2023,
arXiv:2307.01952), diffusers' UNet2DConditionModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import COMPONENT, HF, MODEL, Architecture, Component, Row, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ..layers.diffusion.residual_block import output_conv
from ..layers.diffusion.unet_encoder import Condition, block, conditions, descend, latents, middle
from ..layers.image.conv import conv
from ..layers.image.image_net import ImageNet
from ..layers.image.resize import nearest, size_of
from ..pipelines.diffusion.denoiser import CONTROLLED, DOWN_RESIDUALS, MIDDLE_RESIDUAL, Denoiser, run_component
from ..pipelines.image.image_tasks import image_graph
from ..schema.diffusion.unet_keys import DEFAULTS, KEYS, REFUSED, UP_KEYS, refused
from ..schema.diffusion.unet_stages import settle_unet, skip_channels, up_stages
from ..schema.network_hyperparameters import Stated

CLASS, NAME = "UNet2DConditionModel", "unet_2d_condition"
PREDICTION = "out_sample"
"""The output, as Optimum names it: ``sample`` is the input."""
UNET_KEYS: tuple[Row, ...] = (Stated("_class_name", CLASS), *KEYS, *UP_KEYS, *refused(*REFUSED))


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


def denoise(net: ImageNet) -> None:
    """The prediction ``out_sample`` f32 [batch, out_channels, height, width] of latents ``sample`` [batch, in_channels,
    height, width]; for further inputs see `conditions`."""
    _denoise(net, controlled=False)


def denoise_controlled(net: ImageNet) -> None:
    """As `denoise`, with further inputs that are added to skip connections and to the middle's result: residuals of
    a ControlNet, of these shapes or [batch, channels, 1, 1]."""
    _denoise(net, controlled=True)


def denoise_at_once(net: ImageNet) -> None:
    """As `denoise`, with one ``timestep`` [] of all latents, as Optimum exports UNets."""
    _denoise(net, controlled=False, one_time=True)


def _denoise(net: ImageNet, *, controlled: bool, one_time: bool = False) -> None:
    sample = latents(net)
    condition = conditions(net, one_time=one_time)
    x, skips = descend(net, conv(net, sample, "conv_in"), condition)
    x = middle(net, x, condition)
    if controlled:
        x, skips = _controlled(net, x, skips)
    net.output(PREDICTION, output_conv(net, _ascend(net, x, skips, condition), "", net.config.eps, net.config.act))


def _ascend(net: ImageNet, x: Value, skips: list[Value], condition: Condition) -> Value:
    """The way up, which takes the skip connections from the end."""
    for stage in up_stages(net.config):
        for j in range(len(stage.channels)):
            x = block(net, net.Concat(x, skips.pop(), axis=1), condition, stage, j)
        if stage.resampled:
            x = conv(net, nearest(net, x, size_of(net, skips[-1])), f"{stage.name}.upsamplers.0.conv")
    return x


def _controlled(net: ImageNet, x: Value, skips: list[Value]) -> tuple[Value, list[Value]]:
    """The middle's result `x` and the skip connections, each with the residual that is an input."""
    widths = skip_channels(net.config)
    residuals = [
        net.input(f"{DOWN_RESIDUALS}.{i}", "f32", ("batch", width, f"height_{i}", f"width_{i}"))
        for i, width in enumerate(widths)
    ]
    residual = net.input(MIDDLE_RESIDUAL, "f32", ("batch", widths[-1], "height_middle", "width_middle"))
    return net.Add(x, residual), [net.Add(skip, each) for skip, each in zip(skips, residuals, strict=True)]


MODULES = (
    "conv_in",
    "time_embedding",
    "class_embedding",
    "add_embedding",
    "down_blocks",
    "mid_block",
    "up_blocks",
    "conv_norm_out",
    "conv_out",
)
ARCHITECTURES = (
    Architecture(
        NAME,
        "Stable Diffusion UNet",
        (),
        (),
        UNET_KEYS,
        (),
        (
            Task(
                "denoising",
                {MODEL: image_graph(denoise)},
                Denoiser,
                variants={CONTROLLED: image_graph(denoise_controlled)},
            ),
        ),
        implied=implied,
        settle=settle_unet,
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, MODULES)),
        defaults={NAME: DEFAULTS},
        component=Component({COMPONENT: image_graph(denoise_at_once)}, run_component),
    ),
)
