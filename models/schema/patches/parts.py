"""Rows that multimodal models with images of any size share: tokens around images, and their language model."""

from __future__ import annotations

from dataclasses import replace

from ....runtime.contract.architecture import Below, Config, Key, Part
from ..language_part import LANGUAGE_MODEL

VISION = "vision"
"""The name of the part that encodes pictures."""


def vision_keys(first: int) -> tuple[Key, ...]:
    """Ids of tokens around and in place of pictures, counted from `first` where config.json does not state them."""
    names = ("vision_start_token_id", "vision_end_token_id", "vision_token_id", "image_token_id", "video_token_id")
    own = ("vision_start", "vision_end", "vision_token", "image_token", "video_token")
    return tuple(Key(name, key, (), first + i) for i, (name, key) in enumerate(zip(own, names, strict=True)))


def visual(architecture: str, inner: str = "") -> Part:
    """The encoder of pictures; `inner`: what names of its weights begin with in its own file."""
    return Part(architecture, "vision_config", (Below(f"model.visual.{inner}", inner), Below(f"visual.{inner}", inner)))


def in_one_frame(config: Config, fixed: bool) -> Config:
    """Hyper-parameters by which an encoder takes one frame in a run; not in exported graphs, unless `fixed`."""
    return Config({**config.values, f"{VISION}.one_frame": True}) if fixed else config


def language_model(flat: str | None = None) -> Part:
    """The language model; `flat` as of `Part`."""
    return replace(LANGUAGE_MODEL, flat=flat)
