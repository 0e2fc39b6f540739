"""The prior of Wuerstchen v2 (Pernias et al. 2023, arXiv:2306.00637), which draws semantic latents of text: ConvNeXt
blocks with timestep conditioning and attention at one resolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, MODEL, Architecture, Key, Task
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ..layers.diffusion.wuerstchen import (
    TIMESTEP_WIDTH,
    attention_block,
    channel_norm,
    residual_block,
    sized_linear,
    sized_pointwise,
    timestep_block,
    timestep_embedding,
)
from ..layers.image.image_net import ImageNet
from ..pipelines.diffusion.denoiser import SAMPLE, Denoiser
from ..pipelines.image.image_tasks import image_graph

CLASS, NAME = "WuerstchenPrior", "wuerstchen_prior"
KEYS = (
    Key("latent_channels", "c_in", default=16, kind=COUNT),
    Key("channels", "c", default=1280, kind=COUNT),
    Key("text_width", "c_cond", default=1024, kind=COUNT),
    Key("timestep_width", "c_r", default=64, kind=TIMESTEP_WIDTH),
    Key("depth", "depth", default=16, kind=COUNT),
    Key("heads", "nhead", default=16, kind=COUNT),
)
KERNEL = 3
SLOPE = 0.2
"""Factor of the leaky ReLU at negative numbers."""
MARGIN = 1e-5
"""Added to the divisor of the prediction."""


def denoise(net: ImageNet) -> None:
    """The predicted noise ``sample``, of the shape of latents x [batch, c_in, height, width], at times r [batch] of 0
    to 1, of text embeddings c [batch, tokens, c_cond]."""
    config = net.config
    width, channels = config.channels, config.latent_channels
    latents = net.input("x", "f32", ("batch", channels, "height", "width"))
    time = net.input("r", "f32", ("batch",))
    text = net.input("c", "f32", ("batch", "tokens", config.text_width))
    x = sized_pointwise(net, latents, "projection", width, channels)
    text = net.LeakyRelu(sized_linear(net, text, "cond_mapper.0", width, config.text_width), alpha=SLOPE)
    text = sized_linear(net, text, "cond_mapper.2", width, width)
    embedding = timestep_embedding(net, time, config.timestep_width)
    for i in range(0, 3 * config.depth, 3):
        x = residual_block(net, x, f"blocks.{i}", width, KERNEL)
        x = timestep_block(net, x, embedding, f"blocks.{i + 1}", width, config.timestep_width)
        x = attention_block(net, x, text, f"blocks.{i + 2}", width, width, config.heads)
    x = sized_pointwise(net, channel_norm(net, x, width), "out.1", 2 * channels, width)
    net.output(SAMPLE, _noise(net, latents, *net.split(x, [channels, channels], axis=1)))


def _noise(net: ImageNet, latents: Value, mean: Value, level: Value) -> Value:
    """(latents - mean) / |1 - level|."""
    noise: Value = net.Div(net.Sub(latents, mean), net.Add(net.Abs(net.Sub(1.0, level)), MARGIN))
    return noise


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


ARCHITECTURES = (
    Architecture(
        NAME,
        "Wuerstchen prior",
        (),
        (),
        KEYS,
        (),
        (Task("denoising", {MODEL: image_graph(denoise)}, Denoiser),),
        implied=implied,
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, ("projection", "cond_mapper", "blocks", "out"))),
    ),
)
