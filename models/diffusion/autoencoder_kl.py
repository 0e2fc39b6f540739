"""The autoencoder of latent diffusion (Rombach et al. 2022, arXiv:2112.10752), diffusers' AutoencoderKL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, Architecture, Component, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, REAL, Choice, Integer, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.diffusion.residual_block import group_norm, output_conv, residual_block
from ..layers.image.conv import conv, pointwise
from ..layers.image.image_net import ImageNet
from ..layers.image.resize import enlarged
from ..pipelines.diffusion.component_autoencoder import (
    COMPONENT_DECODER,
    COMPONENT_ENCODER,
    LATENT_PARAMETERS,
    LATENT_SAMPLE,
    LOGVAR_RANGE,
    SAMPLE,
    ComponentAutoencoder,
)
from ..pipelines.image.autoencoder_model import AUTOENCODER, DECODER, ENCODER, AutoencoderModel
from ..pipelines.image.image_tasks import image_graph
from ..schema.network_hyperparameters import WIDTHS

CLASS, NAME = "AutoencoderKL", "autoencoder_kl"
FIRST_NAMES = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
"""Names of the attention's layers in diffusers' first releases."""
EPS = 1e-6
KEYS = (
    Key("widths", "block_out_channels", (), (64,), WIDTHS),
    Key("depth", "layers_per_block", (), 1, Integer(1, 64)),
    Key("groups", "norm_num_groups", (), 32, COUNT),
    Key("latent_channels", "latent_channels", (), 4, COUNT),
    Key("act", "act_fn", (), "silu", Choice(("silu", "gelu", "relu", "mish"))),
    Key("scaling", "scaling_factor", (), 0.18215, POSITIVE),
    Key("shift", "shift_factor", (), None, REAL, null=None),
    Key("middle_attention", "mid_block_add_attention", (), True, flag),
    Key("quant", "use_quant_conv", (), True, flag),
    Key("post_quant", "use_post_quant_conv", (), True, flag),
)


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Give the attention's layers their present names."""
    for name in [name for name in weights if ".attentions." in name]:
        module, layer, parameter = name.rsplit(".", 2)
        if layer in FIRST_NAMES:
            weights[f"{module}.{FIRST_NAMES[layer]}.{parameter}"] = weights.pop(name)


def encode(net: ImageNet) -> None:
    """The mean and the logarithm of the variance of latents [batch, channels, height / f, width / f], of pixels in
    -1 .. 1; f is 2 to the power of the number of stages less one."""
    moments = _moments(net, net.pixels("encoder.conv_in.weight"))
    mean, variance = net.split(moments, [net.config.latent_channels] * 2, axis=1)
    net.output("mean", mean)
    net.output("logvar", net.Clip(variance, *LOGVAR_RANGE))


def encode_component(net: ImageNet) -> None:
    """Mean and unlimited logarithm of the variance as one output [batch, 2 x channels, height / f, width / f]."""
    channels = net.tensor("encoder.conv_in.weight").shape[1]
    pixels = net.input(SAMPLE, "f32", ("batch", channels, "height", "width"))
    net.output(LATENT_PARAMETERS, _moments(net, pixels))


def _moments(net: ImageNet, pixels: Value) -> Value:
    """Mean and unlimited logarithm of the variance of the latents of pixels."""
    last = len(net.config.widths) - 1
    x = conv(net, pixels, "encoder.conv_in")
    for i in range(last + 1):
        for j in range(net.config.depth):
            x = residual_block(net, x, f"encoder.down_blocks.{i}.resnets.{j}", EPS)
        if i < last:
            x = conv(net, x, f"encoder.down_blocks.{i}.downsamplers.0.conv", stride=2, padding=(0, 1))
    x = output_conv(net, _middle(net, x, "encoder.mid_block"), "encoder.", EPS, "silu")
    if net.config.quant:
        x = conv(net, x, "quant_conv")
    return x


def decode(net: ImageNet) -> None:
    """Pictures [batch, channels, height x f, width x f] of latents."""
    _decode(net, "latents")


def decode_component(net: ImageNet) -> None:
    """As `decode`, with Optimum's name of the input."""
    _decode(net, LATENT_SAMPLE)


def _decode(net: ImageNet, taken: str) -> None:
    last = len(net.config.widths) - 1
    x = net.input(taken, "f32", ("batch", net.config.latent_channels, "height", "width"))
    if net.config.post_quant:
        x = conv(net, x, "post_quant_conv")
    x = _middle(net, conv(net, x, "decoder.conv_in"), "decoder.mid_block")
    for i in range(last + 1):
        for j in range(net.config.depth + 1):
            x = residual_block(net, x, f"decoder.up_blocks.{i}.resnets.{j}", EPS)
        if i < last:
            x = conv(net, enlarged(net, x, 2), f"decoder.up_blocks.{i}.upsamplers.0.conv")
    net.output(SAMPLE, output_conv(net, x, "decoder.", EPS, "silu"))


def _middle(net: ImageNet, x: Value, name: str) -> Value:
    """Two residual blocks, between which positions attend to each other."""
    x = residual_block(net, x, f"{name}.resnets.0", EPS)
    if net.config.middle_attention:
        x = _attention(net, x, f"{name}.attentions.0")
    return residual_block(net, x, f"{name}.resnets.1", EPS)


def _attention(net: ImageNet, x: Value, name: str) -> Value:
    """Attention of one head between all positions, added to the input."""
    y = net.flatten(group_norm(net, x, f"{name}.group_norm", EPS))
    q, k, v = (net.Unsqueeze(pointwise(net, y, f"{name}.to_{part}"), [1]) for part in "qkv")
    y = net.Squeeze(net.Attention(q, k, v), [1])
    return net.Add(x, net.unflatten(pointwise(net, y, f"{name}.to_out.0"), x))


ARCHITECTURES = (
    Architecture(
        NAME,
        "Autoencoder of latent diffusion",
        (),
        (),
        KEYS,
        (),
        (Task(AUTOENCODER, {ENCODER: image_graph(encode), DECODER: image_graph(decode)}, AutoencoderModel),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=(),
        component=Component(
            {COMPONENT_ENCODER: image_graph(encode_component), COMPONENT_DECODER: image_graph(decode_component)},
            ComponentAutoencoder,
        ),
        modules=tuple(map(Module, ("encoder", "decoder", "quant_conv", "post_quant_conv"))),
    ),
)
