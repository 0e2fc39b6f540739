"""Hyper-parameters and weights of image encoders of packed patches (models/layers/packed_patches/)."""

from __future__ import annotations

from collections.abc import Mapping

from ....runtime.contract.architecture import Key, Stored, Weight
from ....runtime.contract.hyperparameter import COUNT, Integer
from ..hyperparameters import LAYERS, act, matrix
from ..weight_layout import Reshaped

SIDE = Integer(1, 1 << 10)
SQUARE = "merge*merge*hidden"
QWEN2_MERGER = {"norm": "ln_q", "up": "mlp.0", "down": "mlp.2"}
"""Names of the parts of Qwen2-VL's and Qwen2.5-VL's mergers in files of transformers."""
QWEN_KEYS = (
    Key("layers", "depth", (), 32, LAYERS),
    Key("heads", "num_heads", (), 16, COUNT),
    Key("channels", ("in_channels", "in_chans"), (), 3, COUNT),
    Key("merge", "spatial_merge_size", (), 2, SIDE),
    Key("frames", "temporal_patch_size", (), 2, SIDE),
)
"""Hyper-parameters of Qwen's encoders, by the names that all of them have in config.json."""


def encoder_keys(width: str, out: str, intermediate: Key, activation: str, patch: int = 14) -> tuple[Key, ...]:
    """Hyper-parameters of one of Qwen's encoders.

    Args:
        width, out: keys of the widths inside and after the merger.
        intermediate: the row of the width of feed-forward networks.
        activation, patch: defaults.
    """
    return (
        *QWEN_KEYS,
        Key("hidden", width, (), 1280, COUNT),
        Key("out", out, (), 3584, COUNT),
        intermediate,
        Key("patch", "patch_size", (), patch, SIDE),
        act(activation),
    )


def encoder_weights(mlp: Mapping[str, str]) -> tuple[Weight, ...]:
    """The weights of patches and layers; `mlp`: names of the linear layers of feed-forward networks in files of
    transformers."""
    width = "channels*frames*patch*patch"
    volume = Reshaped(("hidden", width), ("hidden", "channels", "frames", "patch", "patch"))
    name, square = "blocks.{i}.", ("hidden", "hidden")
    shapes = {"up": ("intermediate", "hidden"), "gate": ("intermediate", "hidden"), "down": ("hidden", "intermediate")}
    return (
        Weight("patch_embed.weight", Stored(("patch_embed.proj.weight",), volume), shape=("hidden", width)),
        Weight("patch_embed.bias", "patch_embed.proj.bias", shape=("hidden",), optional=True),
        *matrix(f"{name}norm1", f"{name}norm1", None, shape=("hidden",)),
        *matrix(f"{name}attn.qkv", f"{name}attn.qkv", None, shape=("3*hidden", "hidden")),
        *matrix(f"{name}attn.o", f"{name}attn.proj", None, shape=square),
        *matrix(f"{name}norm2", f"{name}norm2", None, shape=("hidden",)),
        *(
            row
            for own, theirs in mlp.items()
            for row in matrix(f"{name}mlp.{own}", f"{name}mlp.{theirs}", None, shape=shapes[own])
        ),
    )


def merger_weights(name: str, theirs: str, parts: Mapping[str, str], *, norm_first: bool = True) -> tuple[Weight, ...]:
    """The weights of a module that makes tokens of squares of patches.

    Args:
        name, theirs: of the module, here and in files of transformers.
        parts: names of its norm and its linear layers there.
        norm_first: whether the norm is of single patches.
    """
    width = "hidden" if norm_first else SQUARE
    return (
        *matrix(f"{name}.norm", f"{theirs}.{parts['norm']}", None, shape=(width,)),
        *matrix(f"{name}.up", f"{theirs}.{parts['up']}", None, shape=(SQUARE, SQUARE)),
        *matrix(f"{name}.down", f"{theirs}.{parts['down']}", None, shape=("out", SQUARE)),
    )
