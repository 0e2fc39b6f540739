"""Encoders of packed patches (Qwen-VL, PaddleOCR-VL) and their mergers in llama.cpp's files (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config, Key, Row, Stored, Weight, Whole
from ....runtime.contract.hyperparameter import SIZE, Integer, Listed, checked, flag
from ....runtime.tensor.stored_tensor import StoredTensor
from ..rope.multimodal_rope import MultimodalRope
from ..weight_layout import JOINED, changed
from .keys import EPS, SIDE, Fixed, image_processor, vision_keys
from .llava import OPENAI_MEAN, OPENAI_STD
from .siglip import HALF
from .vit import BLOCK, HIDDEN, KINDS, LAYERS, pair

FRAMES, CHANNELS = 2, 3
PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
WINDOW = 112
"""Pixels of a window of attention in llama.cpp."""
TOKENS = {
    "image_token": "<|image_pad|>", "vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>",
    "vision_token": "<|vision_pad|>", "video_token": "<|video_pad|>",
}  # fmt: skip
SQUARE = "vision.merge*vision.merge*vision.hidden"
AXES, SECTIONS = 3, "rope.dimension_sections"
NAME = "vision.blocks.{i}."


class Frames(Whole):
    """The kernels of two frames, each [channels out, channels, patch, patch], as one matrix [channels out, channels *
    frames * patch * patch]."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        first, second = parts
        if len(first.shape) != 4 or first.shape != second.shape:
            raise ValueError(f"kernels of the shapes {list(first.shape)} and {list(second.shape)}")
        out, *inner = first.shape
        shape = (out, len(parts) * int(np.prod(inner)))
        return changed(first, shape, lambda x: np.stack([x, second.numpy().astype(x.dtype)], 2))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        side = config.values["vision.patch"]
        shape = (whole.shape[0], CHANNELS, side, side)
        return [
            changed(whole, shape, lambda x, i=i: x.reshape(len(x), CHANNELS, count, side, side)[:, :, i])  # type: ignore[misc]
            for i in range(count)
        ]


class WindowPattern:
    """Hyper-parameter: the layers whose patches see the whole frame, every n-th one."""

    name, key = "vision.full_layers", "vision.n_wa_pattern"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        if source.get(self.key) is None:
            raise KeyError(self.key)
        step = checked(self.key, source.get(self.key), SIDE)
        return list(range(step - 1, config.values["vision.layers"], step))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: config.values[self.name][0] + 1}


class DeepstackLayers:
    """Hyper-parameter: the layers whose features the language model adds, of a switch for each layer."""

    name, key = "vision.deepstack", "vision.is_deepstack_layers"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        switches = checked(self.key, source.get(self.key) or [], Listed(flag, 0, 1 << 12))
        found = [i for i, switch in enumerate(switches) if switch]
        config.values["vision.deepstack_layers"] = len(found)
        return found

    def write(self, names: str, config: Config) -> dict[str, Any]:
        chosen = config.values[self.name]
        return {self.key: [i in chosen for i in range(config.values["vision.layers"])]}


@dataclass(frozen=True)
class PositionGrid:
    """Hyper-parameter: how many learned positions there are, of the size of pictures that they are for."""

    name: str = "vision.positions"
    key: str = "vision.image_size"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if source.get(self.key) is None:
            raise KeyError(self.key)
        side: int = checked(self.key, source.get(self.key), SIDE) // checked(
            "vision.patch_size", source.get("vision.patch_size", 1), SIDE
        )
        return side * side

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: round(config.values[self.name] ** 0.5) * config.values["vision.patch"]}


def qwen_keys(projector: str, size: Row, *further: Row) -> tuple[Row, ...]:
    """Rows of the hyper-parameters of Qwen's image encoders, whose norms add 1e-6."""
    return (
        *vision_keys(projector, size, eps=Fixed("eps", EPS, 1e-6)),
        Key("vision.merge", (), "vision.spatial_merge_size", 2, Integer(1, 1 << 10)),
        *further,
    )


def qwen_weights(norm: str, *, fused: bool = False, gated: bool = False) -> tuple[Weight, ...]:
    """The rows of one of Qwen's encoders and its merger.

    Args:
        norm: own name of the merger's norm.
        fused: whether files have queries, keys and values as one matrix; both are read.
        gated: whether feed-forward networks have a gate.
    """

    def ways(kind: str) -> tuple[Stored, ...]:
        both = (
            Stored(tuple(f"{BLOCK}attn_{part}.{kind}" for part in "qkv"), JOINED), Stored((f"{BLOCK}attn_qkv.{kind}",)),
        )  # fmt: skip
        return both[::-1] if fused else both

    return (
        Weight("vision.patch_embed.weight", gguf=Stored(("v.patch_embd.weight", "v.patch_embd.weight.1"), Frames())),
        Weight("vision.patch_embed.bias", gguf="v.patch_embd.bias", optional=True),
        *pair(f"{NAME}norm1", f"{BLOCK}ln1"),
        *(Weight(f"{NAME}attn.qkv.{kind}", gguf=ways(kind), optional=True, layers=LAYERS) for kind in KINDS),
        *pair(f"{NAME}attn.o", f"{BLOCK}attn_out"),
        *pair(f"{NAME}norm2", f"{BLOCK}ln2"),
        *(pair(f"{NAME}mlp.gate", f"{BLOCK}ffn_gate") if gated else ()),
        *pair(f"{NAME}mlp.up", f"{BLOCK}ffn_up"),
        *pair(f"{NAME}mlp.down", f"{BLOCK}ffn_down"),
        *pair(norm, "v.post_ln"),
        *pair("vision.merger.up", "mm.0"),
        *pair("vision.merger.down", "mm.2", shape=(HIDDEN, SQUARE)),
    )


PUBLISHED_EPSILON = 1e-5


def sections(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The keys of the language model's file: how many rotated pairs have each axis, of which GGUF has four."""
    axes = config.values["text.position_axes"]
    return {SECTIONS: [*(axes.count(axis) for axis in range(AXES)), 0]}


def stated_axes(source: Mapping[str, Any], rope: MultimodalRope) -> dict[str, Any]:
    """The axis of each rotated pair, from the keys of the language model's file."""
    stated = source.get(SECTIONS)
    found = rope.sections if stated is None else checked(SECTIONS, stated, Listed(SIZE, AXES, AXES + 1))[:AXES]
    return {rope.name: rope.axes(found)}


def deepstack_sections(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """As `sections`, and how many layers add features."""
    return {**sections(config, weights), "n_deepstack_layers": len(config.values["vision.deepstack"])}


def two_frames(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """Why llama.cpp does not have an encoder; empty if it does."""
    if config.values["vision.frames"] != FRAMES or config.values["vision.channels"] != CHANNELS:
        return f"it takes patches of {FRAMES} frames and {CHANNELS} channels"
    return ""


def without_epsilon(config: Config) -> str:
    """The deviation of llama.cpp in builds of 2026, whose reader of ``qwen2vl`` does not take the epsilon of the norms;
    empty for one as small as the published."""
    eps = config.values.get("text.eps", 0.0)
    return "" if eps <= PUBLISHED_EPSILON else f"the norms of its language model add 0, not {eps:g}"


def windowed(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """As `two_frames`, for encoders with windows."""
    full, window = config.values["vision.full_layers"], config.values["vision.window"]
    if window != WINDOW:
        return f"its windows have {WINDOW} pixels, those of the model {window}"
    step = full[0] + 1 if full else 0
    if not full or full != list(range(step - 1, config.values["vision.layers"], step)):
        return f"each n-th of its layers sees the whole frame, and fullatt_block_indexes is {full}"
    return two_frames(config, weights)


def taken_sizes(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Sizes that files do not state, or that llama.cpp's converter states otherwise."""
    up = weights.get("vision.blocks.0.mlp.up.weight")
    width = config.values["vision.intermediate"] if up is None else up.shape[0]
    ratio = max(1, width // config.values["vision.hidden"])
    found = {"vision.intermediate": width, "vision.ratio": ratio, "vision.out": config.values["text.hidden"]}
    return {**found, "vision.frames": FRAMES, "vision.channels": CHANNELS, "vision.window": WINDOW}


def patch_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json of Qwen2-VL and Qwen2.5-VL."""
    return image_processor(
        "Qwen2VLImageProcessor", config, OPENAI_MEAN, OPENAI_STD, resample=3, size=PIXELS,
        patch_size=config.values.get("vision.patch", 14), merge_size=config.values.get("vision.merge", 2),
        temporal_patch_size=FRAMES,
    )  # fmt: skip


def qwen3_preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json of Qwen3-VL."""
    return {
        **patch_preparation(config), "size": {"shortest_edge": 1 << 16, "longest_edge": 1 << 24},
        **{name: config.values.get(name, HALF) for name in ("image_mean", "image_std")},
    }  # fmt: skip
