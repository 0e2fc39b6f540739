"""The autoencoder of Paella (Rampas et al. 2022, arXiv:2211.07292) and Wuerstchen, diffusers' PaellaVQModel: a
convolutional encoder and decoder, and a codebook for latents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, Architecture, Key, Task
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, Integer
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ..layers.diffusion.conditioning import plain_norm
from ..layers.diffusion.wuerstchen import (
    check_layer,
    check_shape,
    patch_conv,
    pixel_shuffle,
    sized_linear,
    sized_pointwise,
)
from ..layers.image.conv import conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..pipelines.diffusion.vq_autoencoder import CODES, QUANTIZER, VQAutoencoder
from ..pipelines.image.autoencoder_model import AUTOENCODER, DECODER, ENCODER
from ..pipelines.image.image_tasks import image_graph

CLASS, NAME = "PaellaVQModel", "paella_vq"
KEYS = (
    Key("channels", "in_channels", default=3, kind=COUNT),
    Key("out_channels", "out_channels", default=3, kind=COUNT),
    Key("patch", "up_down_scale_factor", default=2, kind=Integer(1, 64)),
    Key("levels", "levels", default=2, kind=Integer(1, 16)),
    Key("blocks", "bottleneck_blocks", default=12, kind=COUNT),
    Key("width", "embed_dim", default=384, kind=COUNT),
    Key("latent_channels", "latent_channels", default=4, kind=COUNT),
    Key("codes", "num_vq_embeddings", default=8192, kind=COUNT),
    Key("scaling", "scale_factor", default=0.3764, kind=POSITIVE),
)
GAMMAS = 6
"""Numbers by which a block scales and shifts."""


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


def encode(net: ImageNet) -> None:
    """Latents [batch, latent_channels, height / f, width / f] of pixels in 0 .. 1, before the codebook; f is
    up_down_scale_factor times 2 to the power of levels less one."""
    config, widths = net.config, _widths(net)
    pixels = net.input("pixel_values", "f32", ("batch", config.channels, "height", "width"))
    x = patch_conv(net, pixels, "in_block.1", widths[0], config.channels, config.patch)
    for i, width in enumerate(widths):
        if i:
            name = f"down_blocks.{2 * i - 1}"
            check_layer(net, name, width, widths[i - 1], 4, 4)
            x = conv(net, x, name, stride=2, padding=1)
        x = _mixing_block(net, x, f"down_blocks.{2 * i}", width)
    last = f"down_blocks.{2 * config.levels - 1}"
    check_shape(net, f"{last}.0.weight", config.latent_channels, widths[-1], 1, 1)
    net.output("latents", conv_norm(net, x, f"{last}.0", f"{last}.1"))


def quantize(net: ImageNet) -> None:
    """The nearest entries of the codebook to latents, and their indices ``codes`` int64 [batch, height, width]."""
    channels, name = net.config.latent_channels, "vquantizer.embedding.weight"
    check_shape(net, name, net.config.codes, channels)
    latents = net.input("latents", "f32", ("batch", channels, "height", "width"))
    table = net.vector(name)
    products = net.MatMul(net.channels_last(latents), net.Transpose(table, perm=[1, 0]))
    distances = net.Sub(net.ReduceSumSquare(table, [1], keepdims=0), net.Mul(products, 2.0))
    codes = net.ArgMin(distances, axis=3, keepdims=0)
    net.output("latents_of_codes", net.channels_first(net.Gather(table, codes)))
    net.output(CODES, codes)


def decode(net: ImageNet) -> None:
    """Pictures [batch, out_channels, height x f, width x f] of latents."""
    config, widths = net.config, _widths(net)[::-1]
    x = net.input("latents", "f32", ("batch", config.latent_channels, "height", "width"))
    x = sized_pointwise(net, x, "up_blocks.0.0", widths[0], config.latent_channels)
    index = 1
    for i, width in enumerate(widths):
        for _ in range(1 if i else config.blocks):
            x = _mixing_block(net, x, f"up_blocks.{index}", width)
            index += 1
        if i + 1 < len(widths):
            x = _enlarged(net, x, f"up_blocks.{index}", width, widths[i + 1])
            index += 1
    x = sized_pointwise(net, x, "out_block.0", config.out_channels * config.patch**2, widths[-1])
    net.output("sample", pixel_shuffle(net, x, config.patch))


def _widths(net: ImageNet) -> list[int]:
    """Channels of each level, in the order of the encoder."""
    widths = [int(net.config.width) >> i for i in reversed(range(net.config.levels))]
    if not widths[0]:
        why = f"embed_dim {net.config.width:,} cannot be halved {net.config.levels - 1} times"
        raise FormatError("E-ARCH-KEY", None, why, hint="Correct levels or embed_dim in config.json")
    return widths


def _mixing_block(net: ImageNet, x: Value, name: str, width: int) -> Value:
    """A depthwise convolution and two linear layers, each after a norm and added to its input, scaled by numbers."""
    check_shape(net, f"{name}.gammas", GAMMAS)
    check_layer(net, f"{name}.depthwise.1", width, 1, 3, 3)
    numbers = net.split(net.vector(f"{name}.gammas"), [1] * GAMMAS, axis=0)

    def normed(x: Value, scale: Value, shift: Value) -> Value:
        y = plain_norm(net, net.channels_last(x), width)
        changed: Value = net.Add(net.Mul(y, net.Add(scale, 1.0)), shift)
        return changed

    y = net.Pad(net.channels_first(normed(x, *numbers[:2])), [0, 0, 1, 1, 0, 0, 1, 1], mode="edge")
    x = net.Add(x, net.Mul(conv(net, y, f"{name}.depthwise.1", padding=0, groups=0), numbers[2]))
    y = sized_linear(net, normed(x, *numbers[3:5]), f"{name}.channelwise.0", 4 * width, width)
    y = sized_linear(net, net.Gelu(y), f"{name}.channelwise.2", width, 4 * width)
    added: Value = net.Add(x, net.channels_first(net.Mul(y, numbers[5])))
    return added


def _enlarged(net: ImageNet, x: Value, name: str, width: int, out: int) -> Value:
    """A transposed convolution that doubles height and width."""
    check_shape(net, f"{name}.weight", width, out, 4, 4)
    check_shape(net, f"{name}.bias", out)
    kernel, bias = net.vector(f"{name}.weight"), net.vector(f"{name}.bias")
    y: Value = net.ConvTranspose(x, kernel, bias, strides=[2, 2], pads=[1, 1, 1, 1])
    return y


ARCHITECTURES = (
    Architecture(
        NAME,
        "Paella's VQ autoencoder",
        (),
        (),
        KEYS,
        (),
        (
            Task(
                AUTOENCODER,
                {ENCODER: image_graph(encode), QUANTIZER: image_graph(quantize), DECODER: image_graph(decode)},
                VQAutoencoder,
            ),
        ),
        implied=implied,
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, ("in_block", "down_blocks", "vquantizer", "up_blocks", "out_block"))),
    ),
)
