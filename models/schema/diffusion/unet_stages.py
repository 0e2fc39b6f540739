"""Stages of denoising UNets: channels, layers and heads of each, and the shapes of their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.contract.architecture import HF, Config
from ....runtime.tensor.stored_tensor import StoredTensor
from .unet_keys import (
    CROSS_DOWN,
    CROSS_MIDDLE,
    CROSS_UP,
    KEYS,
    PLAIN_MIDDLE,
    PROJECTION,
    REVERSED,
    TRANSFORMERS,
    UP_KEYS,
    UP_STAGE_KEYS,
    check,
    check_lengths,
    invalid,
    per_stage,
    text_width,
)

Shapes = Iterator[tuple[str, tuple[int, ...]]]
IDLE = ("sample_size", "upcast")
"""Parameters that do not change what is computed of an input."""


@dataclass(frozen=True)
class Stage:
    """One resolution of a UNet, on the way down or up.

    Attributes:
        name: prefix of its weights.
        channels: input and output channels of each residual block.
        transformers: layers of the transformer after each residual block; 0 for a block without attention.
        heads: attention heads.
        only_cross: whether both attentions of a transformer layer are cross attentions.
        resampled: whether it ends with a convolution that halves or doubles the resolution.
    """

    name: str
    channels: tuple[tuple[int, int], ...]
    transformers: tuple[int, ...]
    heads: int
    only_cross: bool
    resampled: bool

    @property
    def width(self) -> int:
        """Output channels."""
        return self.channels[-1][1]


def down_stages(config: Config) -> list[Stage]:
    """The stages on the way down."""
    depth, heads, only_cross = (per_stage(config, name) for name in ("depth", "heads", "only_cross"))
    transformers, widths = per_stage(config, "transformers"), config.widths
    return [
        Stage(
            f"down_blocks.{i}",
            tuple((widths[max(i - 1, 0)] if j == 0 else width, width) for j in range(depth[i])),
            layer_counts(transformers[i] if config.down_blocks[i] == CROSS_DOWN else 0, depth[i]),
            heads[i],
            only_cross[i],
            i < len(widths) - 1,
        )
        for i, width in enumerate(widths)
    ]


def layer_counts(stated: int | list[int], blocks: int) -> tuple[int, ...]:
    """Layers of the transformer after each of `blocks` residual blocks, stated once for all or in a list."""
    return tuple(stated) if isinstance(stated, list) else (stated,) * blocks


def middle_stage(config: Config) -> Stage:
    """The stage of the lowest resolution: two residual blocks with a transformer between them, one alone, or none."""
    width, blocks = config.widths[-1], {CROSS_MIDDLE: 2, PLAIN_MIDDLE: 1}.get(config.mid_block, 0)
    first, *_ = layer_counts(per_stage(config, "transformers")[-1], 1)
    transformers = (first, 0) if config.mid_block == CROSS_MIDDLE else (0,) * blocks
    return Stage("mid_block", ((width, width),) * blocks, transformers, per_stage(config, "heads")[-1], False, False)


def up_stages(config: Config) -> list[Stage]:
    """The stages on the way up; the input of a residual block includes a skip connection."""
    depth, heads, only_cross = (per_stage(config, name)[::-1] for name in ("depth", "heads", "only_cross"))
    transformers, widths = config.up_transformers or per_stage(config, "transformers")[::-1], config.widths[::-1]
    last = len(widths) - 1
    return [
        Stage(
            f"up_blocks.{i}",
            tuple(_joined(widths, i, j, depth[i]) for j in range(depth[i] + 1)),
            layer_counts(transformers[i] if config.up_blocks[i] == CROSS_UP else 0, depth[i] + 1),
            heads[i],
            only_cross[i],
            i < last,
        )
        for i in range(len(widths))
    ]


def _joined(widths: list[int], i: int, j: int, depth: int) -> tuple[int, int]:
    """Input and output channels of residual block `j` of stage `i` on the way up, of which `depth` is the last one."""
    before = widths[max(i - 1, 0)] if j == 0 else widths[i]
    skipped = widths[min(i + 1, len(widths) - 1)] if j == depth else widths[i]
    return before + skipped, widths[i]


def settle_unet(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Compare hyper-parameters of a UNet with each other and with the weights."""
    check(config, UP_STAGE_KEYS)
    check_stages(config)
    check_shapes(chain(encoder_shapes(config), decoder_shapes(config)), weights, config.values.get("path"))


def check_stages(config: Config) -> None:
    """FormatError for lists of a UNet that have not a value for each stage and block."""
    check_lengths(config, UP_STAGE_KEYS)
    check_layers(config, down_stages(config), TRANSFORMERS)
    check_layers(config, up_stages(config), REVERSED)


def check_layers(config: Config, stages: list[Stage], key: str) -> None:
    """FormatError where a list of transformer layers under `key` has not one number for each residual block."""
    for stage in stages:
        blocks, stated = len(stage.channels), len(stage.transformers)
        if blocks != stated:
            raise invalid(config, key, f"a list of {stated} for {stage.name}", counted(blocks, "number"))


def skip_channels(config: Config) -> list[int]:
    """Channels of each skip connection, the first convolution's included."""
    stages = down_stages(config)
    inner = ([stage.width] * (len(stage.channels) + stage.resampled) for stage in stages)
    return [config.widths[0], *(width for widths in inner for width in widths)]


def check_shapes(shapes: Shapes, weights: Mapping[str, StoredTensor], path: str | None) -> None:
    """FormatError for the first weight of another shape, KeyError for the first that is missing."""
    for name, shape in shapes:
        found = tuple(weights[name].shape)
        if found != shape:
            why = f"{name} of the shape {list(found)} does not fit the configuration"
            raise FormatError("E-ARCH-SHAPE", path, why, expected=list(shape), hint="Is the config.json this model's?")


def unet_settings(config: Config) -> dict[str, Any]:
    """Settings that decide the structure of a UNet, by the keys of config.json; a single value, a list and a default of
    the same meaning are equal."""
    down, middle, up = down_stages(config), middle_stage(config), up_stages(config)
    values = {key.keys(HF)[0]: config.values.get(key.name) for key in (*KEYS, *UP_KEYS) if key.name not in IDLE}
    attended = [stage for stage in (*down, middle, *up) if any(stage.transformers)]
    values |= {
        "layers_per_block": [len(stage.channels) for stage in down],
        TRANSFORMERS: [stage.transformers for stage in (*down, middle)],
        REVERSED: [stage.transformers for stage in up],
        "attention_head_dim": [stage.heads for stage in attended],
        "only_cross_attention": [stage.only_cross for stage in attended],
        "cross_attention_dim": text_width(config),
        "time_embedding_dim": time_width(config),
    }
    conditions = {"addition_time_embed_dim": config.addition, "projection_class_embeddings_input_dim": config.addition}
    return {key: value for key, value in values.items() if conditions.get(key, True)}


def encoder_shapes(config: Config) -> Shapes:
    """Weights that UNets and ControlNets have: embeddings, the first convolution, the way down and the middle."""
    time, kernel = time_width(config), config.values.get("kernel_in", 3)
    yield from conv_shapes("conv_in", config.channels, config.widths[0], kernel)
    yield from _two_layers("time_embedding", config.widths[0], time)
    if config.class_embedding == PROJECTION:
        yield from _two_layers("class_embedding", config.addition_width, time)
    elif config.classes:
        yield "class_embedding.weight", (config.classes, time)
    if config.addition:
        yield from _two_layers("add_embedding", config.addition_width, time)
    for stage in down_stages(config):
        yield from stage_shapes(config, stage)
        if stage.resampled:
            yield from conv_shapes(f"{stage.name}.downsamplers.0.conv", stage.width, stage.width, 3)
    yield from stage_shapes(config, middle_stage(config))


def decoder_shapes(config: Config) -> Shapes:
    """Weights of UNets alone: the projection of the guidance (LCM), the way up, the last convolution."""
    if config.guidance_width:
        yield "time_embedding.cond_proj.weight", (config.widths[0], config.guidance_width)
    for stage in up_stages(config):
        yield from stage_shapes(config, stage)
        if stage.resampled:
            yield from conv_shapes(f"{stage.name}.upsamplers.0.conv", stage.width, stage.width, 3)
    yield from _affine("conv_norm_out", config.widths[0])
    yield from conv_shapes("conv_out", config.widths[0], config.out_channels, config.kernel_out)


def time_width(config: Config) -> int:
    """Width of the timestep embedding."""
    return int(config.values.get("time_width") or 4 * config.widths[0])


def stage_shapes(config: Config, stage: Stage) -> Shapes:
    """Weights of the residual blocks and transformers of a stage."""
    for j, (before, width) in enumerate(stage.channels):
        yield from _residual(f"{stage.name}.resnets.{j}", before, width, time_width(config))
        if stage.transformers[j]:
            yield from _transformer(config, stage, j)


def conv_shapes(name: str, before: int, width: int, kernel: int) -> Shapes:
    """A convolution with a square kernel."""
    yield f"{name}.weight", (width, before, kernel, kernel)
    yield f"{name}.bias", (width,)


def _affine(name: str, *shape: int) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _two_layers(name: str, before: int, width: int) -> Shapes:
    yield from _affine(f"{name}.linear_1", width, before)
    yield from _affine(f"{name}.linear_2", width, width)


def _residual(name: str, before: int, width: int, time: int) -> Shapes:
    yield from _affine(f"{name}.norm1", before)
    yield from conv_shapes(f"{name}.conv1", before, width, 3)
    yield from _affine(f"{name}.time_emb_proj", width, time)
    yield from _affine(f"{name}.norm2", width)
    yield from conv_shapes(f"{name}.conv2", width, width, 3)
    if before != width:
        yield from conv_shapes(f"{name}.conv_shortcut", before, width, 1)


def _transformer(config: Config, stage: Stage, j: int) -> Shapes:
    name, width, inner = f"{stage.name}.attentions.{j}", stage.width, stage.width // stage.heads * stage.heads
    last = () if config.linear_projection else (1, 1)
    yield from _affine(f"{name}.norm", width)
    yield from _affine(f"{name}.proj_in", inner, width, *last)
    for k in range(stage.transformers[j]):
        yield from _layer(f"{name}.transformer_blocks.{k}", inner, text_width(config), stage.only_cross)
    yield from _affine(f"{name}.proj_out", width, inner, *last)


def _layer(name: str, inner: int, text: int, only_cross: bool) -> Shapes:
    for attention, source in (("attn1", text if only_cross else inner), ("attn2", text)):
        yield f"{name}.{attention}.to_q.weight", (inner, inner)
        yield f"{name}.{attention}.to_k.weight", (inner, source)
        yield f"{name}.{attention}.to_v.weight", (inner, source)
        yield from _affine(f"{name}.{attention}.to_out.0", inner, inner)
    for norm in ("norm1", "norm2", "norm3"):
        yield from _affine(f"{name}.{norm}", inner)
    yield from _affine(f"{name}.ff.net.0.proj", 8 * inner, inner)
    yield from _affine(f"{name}.ff.net.2", inner, 4 * inner)
