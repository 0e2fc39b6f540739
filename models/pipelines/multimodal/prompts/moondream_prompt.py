"""Moondream's processor: BOS, the features of a picture, and the text. No token stands for pictures; ids have -1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from .marked_pictures import MarkedPictures, prepared
from .prompt_rules import Arrays, Prompted, PromptModel

PLACEHOLDER, MARKER = -1, "<image>"
SIZE = (378, 378)
"""Height and width of pictures, where files do not state them."""


def _expanded(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Pixels of the picture from -1 to 1. No text stands for it."""
    from ....preprocess.preparation import Preparation
    from ....preprocess.resize_rules import Exact

    assert model.options.config is not None
    if len(images) > 1:
        why = f"the model takes one picture, but the prompt has {counted(len(images), 'picture')}"
        raise UsageError("E-LM-MODALITY", None, why, hint="Ask about one picture at a time")
    size = model.options.config.values["vision.image_size"] or SIZE
    return prepared(model, images, Preparation(Exact(*size), factor=(2 / 255,), shift=(-1.0,))), [""]


def _question(text: str, markers: str) -> str:
    """A question as the model was trained to answer it."""
    return f"{markers}\n\nQuestion: {text}\n\nAnswer:"


_PICTURES = MarkedPictures(_expanded, marker=lambda model: MARKER, unmarked=_question)


def moondream_prompt(
    model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
) -> Prompted:
    """The prompt; see `Processor`. The text before and that after the picture are encoded alone, as the model's own
    code does; BOS is there unless `add_bos` is False."""
    pieces = _PICTURES.pieces(model, text, images, audio)
    arrays, _ = _PICTURES.expand(model, images) if len(images) else ({}, [])
    ids = model.tokenizer.encode(pieces[0], add_bos=add_bos is not False, add_eos=False)
    for piece in pieces[1:]:
        height, width = arrays["pixel_values"].shape[2:]
        assert model.options.config is not None
        patch = model.options.config.values["vision.patch"]
        ids += [PLACEHOLDER] * (height // patch * (width // patch))
        ids += model.tokenizer.encode(piece, add_bos=False, add_eos=False)
    return Prompted(ids, arrays)
