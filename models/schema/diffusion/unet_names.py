"""The UNet of latent diffusion (Rombach et al. 2022, arXiv:2112.10752): its original names, as in single files of
Stable Diffusion 1, 2 and XL, and its configuration.

A stage of the original is `depth` blocks ``input_blocks.N`` (residual block ``.0``, transformer ``.1``) and one that
halves the picture; on the way up it is ``depth + 1`` blocks ``output_blocks.N``, the last of which doubles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from ....runtime.contract.architecture import Config
from ....runtime.tensor.stored_tensor import StoredTensor
from .module_names import Pair, below
from .unet_stages import check_stages, down_stages, middle_stage

RESIDUAL = (
    ("in_layers.0", "norm1"),
    ("in_layers.2", "conv1"),
    ("emb_layers.1", "time_emb_proj"),
    ("out_layers.0", "norm2"),
    ("out_layers.3", "conv2"),
    ("skip_connection", "conv_shortcut"),
)
WHOLE = (
    ("time_embed.0", "time_embedding.linear_1"),
    ("time_embed.2", "time_embedding.linear_2"),
    ("label_emb.0.0", "add_embedding.linear_1"),
    ("label_emb.0.2", "add_embedding.linear_2"),
    ("input_blocks.0.0", "conv_in"),
    ("out.0", "conv_norm_out"),
    ("out.2", "conv_out"),
    ("middle_block.1", "mid_block.attentions.0"),
)
HEAD_DIM = 64
"""Width of a head of Stable Diffusion 2 and XL, whose transformers have linear projections ..."""
HEADS = 8
"""... and heads of each transformer of Stable Diffusion 1."""
TIME_WIDTH = 256
"""Width of the embedding of a size in XL."""


@dataclass(frozen=True)
class UNetShape:
    """The structure of a UNet.

    Attributes:
        depth: residual blocks of a stage on the way down.
        layers: layers of each transformer of a stage, 0 for stages without.
        middle: layers of the transformer in the middle.
    """

    depth: int
    layers: tuple[int, ...]
    middle: int


def unet_modules(weights: Mapping[str, StoredTensor]) -> list[Pair]:
    """The modules by both names, for weights by their original ones."""
    return modules_of(unet_shape(weights))


def modules_of(shape: UNetShape) -> list[Pair]:
    """The modules by both names."""
    step, last = shape.depth + 1, len(shape.layers) - 1
    found = list(WHOLE)
    for i in (0, 2):
        found += below((f"middle_block.{i}", f"mid_block.resnets.{i // 2}"), RESIDUAL)
    for i, layers in enumerate(shape.layers):
        for j in range(shape.depth):
            found += _block(f"input_blocks.{step * i + j + 1}", f"down_blocks.{i}", j, layers)
        if i < last:
            found.append((f"input_blocks.{step * (i + 1)}.0.op", f"down_blocks.{i}.downsamplers.0.conv"))
    for i, layers in enumerate(reversed(shape.layers)):
        for j in range(step):
            found += _block(f"output_blocks.{step * i + j}", f"up_blocks.{i}", j, layers)
        if i < last:
            doubled = f"output_blocks.{step * i + shape.depth}.{2 if layers else 1}.conv"
            found.append((doubled, f"up_blocks.{i}.upsamplers.0.conv"))
    return found


def _block(original: str, stage: str, j: int, layers: int) -> list[Pair]:
    residual = below((f"{original}.0", f"{stage}.resnets.{j}"), RESIDUAL)
    return [*residual, (f"{original}.1", f"{stage}.attentions.{j}")] if layers else residual


def bound_modules(config: Config) -> list[Pair]:
    """The modules by both names, for bound hyper-parameters. ValueError for stages of unequal depths, FormatError for
    values that do not fit each other."""
    check_stages(config)
    stages = down_stages(config)
    depths = {len(stage.channels) for stage in stages}
    if len(depths) > 1:
        raise ValueError("its stages have unequal numbers of residual blocks (layers_per_block)")
    (middle, *_) = middle_stage(config).transformers or (0,)
    return modules_of(UNetShape(depths.pop(), tuple(stage.transformers[0] for stage in stages), middle))


def unet_shape(weights: Mapping[str, StoredTensor]) -> UNetShape:
    """The structure that original names show. KeyError or ValueError for other files."""
    halving = sorted(int(name.split(".")[1]) for name in weights if name.endswith(".0.op.weight"))
    blocks = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("input_blocks."))
    step = halving[0] if halving else blocks
    if not 0 < step <= blocks <= len(weights):
        raise ValueError(f"{counted(blocks, 'block')} in stages of {step:,} for {counted(len(weights), 'weight')}")
    return UNetShape(
        step - 1,
        tuple(_layers(weights, f"input_blocks.{start + 1}.1") for start in range(0, blocks, step)),
        _layers(weights, "middle_block.1"),
    )


def _layers(weights: Mapping[str, StoredTensor], transformer: str) -> int:
    """Layers of a transformer, 0 if it does not exist."""
    count = 0
    while f"{transformer}.transformer_blocks.{count}.norm1.weight" in weights:
        count += 1
    return count


def unet_config(weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The config.json of diffusers for weights by their original names. KeyError or ValueError for other files."""
    shape = unet_shape(weights)
    step, layers = shape.depth + 1, [*shape.layers[:-1], shape.layers[-1] or shape.middle]
    widths = [weights[f"input_blocks.{step * i + 1}.0.out_layers.3.weight"].shape[0] for i in range(len(shape.layers))]
    keys = next(name for name in weights if name.endswith(".attn2.to_k.weight"))
    projection = next(weights[name] for name in weights if name.endswith(".1.proj_in.weight"))
    linear = len(projection.shape) == 2
    config: dict[str, Any] = {
        "_class_name": "UNet2DConditionModel",
        "in_channels": weights["input_blocks.0.0.weight"].shape[1],
        "out_channels": weights["out.2.weight"].shape[0],
        "block_out_channels": widths,
        "layers_per_block": shape.depth,
        "down_block_types": ["CrossAttnDownBlock2D" if layers else "DownBlock2D" for layers in shape.layers],
        "up_block_types": ["CrossAttnUpBlock2D" if layers else "UpBlock2D" for layers in reversed(shape.layers)],
        "transformer_layers_per_block": [max(count, 1) for count in layers],
        "cross_attention_dim": weights[keys].shape[1],
        "attention_head_dim": [max(width // HEAD_DIM, 1) for width in widths] if linear else HEADS,
        "use_linear_projection": linear,
        "sample_size": 64,
    }
    if "label_emb.0.0.weight" in weights:
        config |= {
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": TIME_WIDTH,
            "projection_class_embeddings_input_dim": weights["label_emb.0.0.weight"].shape[1],
            "sample_size": 128,
        }
    return config
