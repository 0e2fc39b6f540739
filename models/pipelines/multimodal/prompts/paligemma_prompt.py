"""PaliGemma's processor: placeholders of the pictures, BOS, the text and a line break, all attending to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .....runtime.contract.architecture import Config
from .marked_pictures import MarkedPictures, prepared, token_text
from .prompt_rules import Arrays, Prompted, PromptModel, PromptRules

PREFIX, ALONE = 2, -1
"""The group of the prompt's tokens, and the mask of tokens without a group, in exported models too."""


def _expanded(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Pixels of the pictures, and a placeholder for each patch."""
    config = model.options.config
    assert config is not None
    arrays = prepared(model, images)
    height, width = arrays["pixel_values"].shape[2:]
    patch = config.values["vision.patch"]
    return arrays, [token_text(model, "image_token") * (height // patch * (width // patch))] * len(images)


def _finished(model: PromptModel, text: str, count: int) -> str:
    """The text with BOS after the last placeholder."""
    marker = token_text(model, "image_token")
    end = text.rfind(marker) + len(marker) if count else 0
    bos = model.tokenizer.role_names().get("bos_token", "")
    return f"{text[:end]}{bos}{text[end:]}\n"


_PICTURES = MarkedPictures(_expanded, unmarked=lambda text, markers: markers + text, finished=_finished)


def paligemma_prompt(
    model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
) -> Prompted:
    """The prompt; see `Processor`."""
    found = _PICTURES(model, text, images, audio, add_bos=False)
    return replace(found, arrays={**found.arrays, "token_type_ids": np.zeros((1, len(found.ids)), np.int64)})


def groups(config: Config, ids: np.ndarray, mask: np.ndarray, arrays: Arrays) -> np.ndarray:
    """One group of the tokens whose ``token_type_ids`` are 0; the others have none."""
    types = arrays.get("token_type_ids")
    return (ALONE if types is None else np.where(types == 0, PREFIX, ALONE)) * mask


PALIGEMMA_RULES = PromptRules(processor=paligemma_prompt, groups=groups, further=("token_type_ids",), answer_mask=ALONE)
