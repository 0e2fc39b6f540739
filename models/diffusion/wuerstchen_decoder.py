"""The decoder of Wuerstchen v2 (Pernias et al. 2023, arXiv:2306.00637), diffusers' WuerstchenDiffNeXt: a UNet of
ConvNeXt blocks, conditioned on semantic latents and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, Integer, Listed, flag, word
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ..layers.diffusion.conditioning import plain_norm
from ..layers.diffusion.cubic_resample import cubic_resample
from ..layers.diffusion.wuerstchen import (
    TIMESTEP_WIDTH,
    attention_block,
    channel_norm,
    check_layer,
    check_shape,
    patch_conv,
    pixel_shuffle,
    residual_block,
    sized_linear,
    sized_pointwise,
    timestep_block,
    timestep_embedding,
)
from ..layers.image.conv import conv, transposed_conv
from ..layers.image.image_net import ImageNet
from ..layers.image.resize import size_of
from ..pipelines.diffusion.denoiser import SAMPLE, Denoiser
from ..pipelines.image.image_tasks import image_graph
from ..schema.network_hyperparameters import WIDTHS

CLASS, NAME = "WuerstchenDiffNeXt", "wuerstchen_decoder"
LEVELS = 16
MARGIN = 1e-3
"""The divisor of the prediction lies between it and 1 less it."""
RESIDUAL, TIMESTEP, ATTENTION = "CTA"
"""Letters of the blocks of a level."""


def block_letters(value: Any) -> str:
    """The blocks of a level, a letter each. ValueError for other letters."""
    letters = word(value)
    if not 1 <= len(letters) <= LEVELS or set(letters) - set("CTA"):
        raise ValueError(f"{letters[:LEVELS]!r} is not 1 to {LEVELS} letters of C, T and A")
    return letters


KEYS = (
    Key("channels", "c_in", default=4, kind=COUNT),
    Key("out_channels", "c_out", default=4, kind=COUNT),
    Key("timestep_width", "c_r", default=64, kind=TIMESTEP_WIDTH),
    Key("patch", "patch_size", default=2, kind=Integer(1, 64)),
    Key("condition", "c_cond", default=1024, kind=COUNT),
    Key("widths", "c_hidden", default=[320, 640, 1280, 1280], kind=WIDTHS),
    Key("heads", "nhead", default=[-1, 10, 20, 20], kind=Listed(Integer(-1), 1, LEVELS)),
    Key("depths", "blocks", default=[4, 4, 14, 4], kind=Listed(COUNT, 1, LEVELS)),
    Key("letters", "level_config", default=["CT", "CTA", "CTA", "CTA"], kind=Listed(block_letters, 1, LEVELS)),
    Key("injected", "inject_effnet", default=[False, True, True, True], kind=Listed(flag, 1, LEVELS)),
    Key("semantic", "effnet_embd", default=16, kind=COUNT),
    Key("text_width", "clip_embd", default=1024, kind=COUNT),
    Key("kernel", "kernel_size", default=3, kind=Integer(1, 63)),
)
PER_LEVEL = {"nhead": "heads", "blocks": "depths", "level_config": "letters", "inject_effnet": "injected"}


@dataclass(frozen=True)
class Conditions:
    """Inputs of blocks besides the image.

    Attributes:
        embedding: of the timestep, [batch, c_r].
        semantic: latents of the prior, [batch, effnet_embd, height, width].
        text: embeddings after a norm, [batch, tokens, c_cond].
    """

    embedding: Value
    semantic: Value
    text: Value


def check_levels(config: Config) -> None:
    """FormatError for lists of other lengths than c_hidden, for attention without heads, an even kernel, or noise of
    other channels than the latents."""
    why = None
    for key, name in PER_LEVEL.items():
        if len(config.values[name]) != len(config.widths):
            why = f"{key} has {len(config.values[name])} levels where c_hidden has {len(config.widths)}"
    if why is None and any(
        heads < 1 and ATTENTION in letters for heads, letters in zip(config.heads, config.letters, strict=True)
    ):
        why = "a level with attention needs a number of heads in nhead"
    if why is None and not any(ATTENTION in letters for letters in config.letters):
        why = "level_config has no attention, so that text has no effect"
    if config.kernel % 2 == 0:
        why = f"kernel_size {config.kernel} is even"
    if config.channels != config.out_channels:
        why = f"c_out {config.out_channels:,} is not c_in {config.channels:,}"
    if why:
        raise FormatError("E-ARCH-KEY", None, f"invalid configuration of a {CLASS}: {why}", hint="Correct config.json")


def denoise(net: ImageNet) -> None:
    """The predicted noise ``sample``, of the shape of latents x [batch, c_in, height, width], at times r [batch] of 0
    to 1, of the prior's latents effnet [batch, effnet_embd, rows, columns] and text embeddings clip [batch, tokens,
    clip_embd]. Height and width are multiples of patch_size times 2 to the power of the number of levels less one."""
    config = net.config
    check_levels(config)
    latents = net.input("x", "f32", ("batch", config.channels, "height", "width"))
    time = net.input("r", "f32", ("batch",))
    semantic = net.input("effnet", "f32", ("batch", config.semantic, "rows", "columns"))
    clip = net.input("clip", "f32", ("batch", "tokens", config.text_width))
    text = sized_linear(net, clip, "clip_mapper", config.condition, config.text_width)
    embedding = timestep_embedding(net, time, config.timestep_width)
    conditions = Conditions(embedding, semantic, plain_norm(net, text, config.condition))
    first = config.widths[0]
    x = patch_conv(net, latents, "embedding.1", first, config.channels, config.patch)
    x = channel_norm(net, x, first)
    skips: list[Value] = []
    for level in range(len(config.widths)):
        x = _down(net, x, level, conditions)
        skips.append(x)
    for level in reversed(range(len(config.widths))):
        x = _up(net, x, level, conditions, skips[level])
    x = sized_pointwise(net, channel_norm(net, x, first), "clf.1", 2 * config.out_channels * config.patch**2, first)
    mean, level_of_noise = net.split(pixel_shuffle(net, x, config.patch), [config.out_channels] * 2, axis=1)
    scale = net.Add(net.Mul(net.Sigmoid(level_of_noise), 1 - 2 * MARGIN), MARGIN)
    net.output(SAMPLE, net.Div(net.Sub(latents, mean), scale))


def _down(net: ImageNet, x: Value, level: int, given: Conditions) -> Value:
    """The blocks of a level of the encoder, after a convolution that halves the size if it is not the first."""
    name, start = f"down_blocks.{level}", 0
    if level:
        out, channels = net.config.widths[level], net.config.widths[level - 1]
        check_layer(net, f"{name}.0.1", out, channels, 2, 2)
        x = conv(net, channel_norm(net, x, channels), f"{name}.0.1", stride=2, padding=0)
        start = 1
    return _blocks(net, x, name, start, level, level, given, None)


def _up(net: ImageNet, x: Value, level: int, given: Conditions, skip: Value) -> Value:
    """The blocks of a level of the decoder, and a transposed convolution that doubles the size, if not the last."""
    widths = net.config.widths
    index = len(widths) - 1 - level
    name = f"up_blocks.{index}"
    x = _blocks(net, x, name, 0, level, len(widths) + index, given, skip if index else None)
    if not level:
        return x
    last = f"{name}.{net.config.depths[level] * len(net.config.letters[level])}"
    check_shape(net, f"{last}.1.weight", widths[level], widths[level - 1], 2, 2)
    check_shape(net, f"{last}.1.bias", widths[level - 1])
    return transposed_conv(net, channel_norm(net, x, widths[level]), f"{last}.1")


def _blocks(
    net: ImageNet, x: Value, name: str, index: int, level: int, mapper: int, given: Conditions, skip: Value | None
) -> Value:
    """The blocks ``NAME.index`` and on; the encoder's result `skip` is for the first one, if it is a residual block."""
    config, channels = net.config, net.config.widths[level]
    skips = () if skip is None else ((skip, channels),)
    injected: tuple[tuple[Value, int], ...] | None = None
    for letter in config.letters[level] * config.depths[level]:
        block = f"{name}.{index}"
        if letter == RESIDUAL:
            injected = _injected(net, x, level, mapper, given) if injected is None else injected
            x = residual_block(net, x, block, channels, config.kernel, (*skips, *injected))
        elif letter == TIMESTEP:
            x = timestep_block(net, x, given.embedding, block, channels, config.timestep_width)
        else:
            x = attention_block(net, x, given.text, block, channels, config.condition, config.heads[level])
        skips, index = (), index + 1
    return x


def _injected(net: ImageNet, x: Value, level: int, mapper: int, given: Conditions) -> tuple[tuple[Value, int], ...]:
    """The semantic latents at the size of `x` by a mapper's channels, for levels that have them."""
    config = net.config
    if not config.injected[level]:
        return ()
    resized = net.once(("semantic", level), lambda: cubic_resample(net, given.semantic, size_of(net, x)))
    y = sized_pointwise(net, resized, f"effnet_mappers.{mapper}", config.condition, config.semantic)
    return ((y, config.condition),)


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Checkpoints of diffusers, by the class that config.json names."""
    return (HF, {**source, "model_type": NAME}) if source.get("_class_name") == CLASS else None


ARCHITECTURES = (
    Architecture(
        NAME,
        "Wuerstchen decoder",
        (),
        (),
        KEYS,
        (),
        (Task("denoising", {MODEL: image_graph(denoise)}, Denoiser),),
        implied=implied,
        prefixes=(),
        ignored=(),
        modules=tuple(map(Module, ("clip_mapper", "effnet_mappers", "embedding", "down_blocks", "up_blocks", "clf"))),
    ),
)
