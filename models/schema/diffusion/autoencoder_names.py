"""The autoencoder of latent diffusion: its original names, as in single files, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from ....runtime.contract.architecture import Config
from ....runtime.tensor.stored_tensor import StoredTensor
from .module_names import Pair, below

ATTENTION = (("norm", "group_norm"), ("q", "to_q"), ("k", "to_k"), ("v", "to_v"), ("proj_out", "to_out.0"))
FIRST_ATTENTION = (("q", "query"), ("k", "key"), ("v", "value"), ("proj_out", "proj_attn"))
"""The same modules in diffusers' first releases."""
SHORTCUT = (("nin_shortcut", "conv_shortcut"),)
"""Modules of a block that have other names; ``norm1``, ``conv1``, ``norm2`` and ``conv2`` have the same."""
ATTENDED = (".attn_1.q.", ".attn_1.k.", ".attn_1.v.", ".attn_1.proj_out.")
"""Parts of names of weights that are 1 x 1 convolutions in the original, matrices in diffusers."""

SETTINGS = {
    "act_fn": "act",
    "mid_block_add_attention": "middle_attention",
    "norm_num_groups": "groups",
    "scaling_factor": "scaling",
    "shift_factor": "shift",
    "use_post_quant_conv": "post_quant",
    "use_quant_conv": "quant",
}
"""Keys of config.json that names and shapes of weights do not show, and ours."""


@dataclass(frozen=True)
class AutoencoderShape:
    """The structure of an autoencoder: its stages, and the residual blocks of a stage of the encoder."""

    stages: int
    depth: int


def autoencoder_modules(weights: Mapping[str, StoredTensor]) -> list[Pair]:
    """The modules by both names, for weights by their original ones."""
    return modules_of(autoencoder_shape(weights))


def modules_of(shape: AutoencoderShape) -> list[Pair]:
    """The modules by both names."""
    found = [(name, name) for name in ("quant_conv", "post_quant_conv")]
    for side, stage, blocks in (("encoder", "down", shape.depth), ("decoder", "up", shape.depth + 1)):
        found += [(f"{side}.conv_in", f"{side}.conv_in"), (f"{side}.conv_out", f"{side}.conv_out")]
        found.append((f"{side}.norm_out", f"{side}.conv_norm_out"))
        for i in (1, 2):
            found += _block(f"{side}.mid.block_{i}", f"{side}.mid_block.resnets.{i - 1}")
        found += below((f"{side}.mid.attn_1", f"{side}.mid_block.attentions.0"), ATTENTION)
        for i in range(shape.stages):
            ours = i if stage == "down" else shape.stages - 1 - i
            for j in range(blocks):
                found += _block(f"{side}.{stage}.{i}.block.{j}", f"{side}.{stage}_blocks.{ours}.resnets.{j}")
            found.append(
                (f"{side}.{stage}.{i}.{stage}sample.conv", f"{side}.{stage}_blocks.{ours}.{stage}samplers.0.conv")
            )
    return found


def _block(original: str, ours: str) -> list[Pair]:
    return [(original, ours), *below((original, ours), SHORTCUT)]


def bound_modules(config: Config) -> list[Pair]:
    """The modules by both names, for bound hyper-parameters; those of diffusers' first releases too."""
    first = [
        pair
        for side in ("encoder", "decoder")
        for pair in below((f"{side}.mid.attn_1", f"{side}.mid_block.attentions.0"), FIRST_ATTENTION)
    ]
    return [*modules_of(AutoencoderShape(len(config.widths), config.depth)), *first]


def autoencoder_settings(config: Config) -> dict[str, Any]:
    """Hyper-parameters of an autoencoder, by the keys of config.json."""
    return {key: config.values[name] for key, name in SETTINGS.items()}


def autoencoder_config(
    weights: Mapping[str, StoredTensor], scaling: float, shift: float | None = None
) -> dict[str, Any]:
    """The config.json of diffusers for weights by their original names; `scaling` and `shift` of latents, which no
    weight shows. KeyError for other files."""
    shape = autoencoder_shape(weights)
    widths = [weights[f"encoder.down.{i}.block.0.conv1.weight"].shape[0] for i in range(shape.stages)]
    channels = weights["decoder.conv_in.weight"].shape[1]
    return {
        "_class_name": "AutoencoderKL",
        "in_channels": weights["encoder.conv_in.weight"].shape[1],
        "out_channels": weights["decoder.conv_out.weight"].shape[0],
        "block_out_channels": widths,
        "layers_per_block": shape.depth,
        "down_block_types": ["DownEncoderBlock2D"] * shape.stages,
        "up_block_types": ["UpDecoderBlock2D"] * shape.stages,
        "latent_channels": channels,
        "mid_block_add_attention": "encoder.mid.attn_1.q.weight" in weights,
        "use_quant_conv": "quant_conv.weight" in weights,
        "use_post_quant_conv": "post_quant_conv.weight" in weights,
        "scaling_factor": scaling,
        "shift_factor": shift,
        "sample_size": 512,
    }


def autoencoder_shape(weights: Mapping[str, StoredTensor]) -> AutoencoderShape:
    """The structure that original names show. ValueError for other files."""
    stages = _count(weights, "encoder.down.{}.block.0.conv1.weight")
    depth = _count(weights, "encoder.down.0.block.{}.conv1.weight")
    if stages * depth > len(weights):
        raise ValueError(
            f"{counted(stages, 'stage')} of {counted(depth, 'block')} for {counted(len(weights), 'weight')}"
        )
    return AutoencoderShape(stages, depth)


def _count(weights: Mapping[str, StoredTensor], name: str) -> int:
    count = 0
    while name.format(count) in weights:
        count += 1
    return count
