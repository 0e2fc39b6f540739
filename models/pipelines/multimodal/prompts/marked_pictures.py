"""Processors of families that write a marker for each picture, which becomes the placeholders of its features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from .prompt_rules import Arrays, Processor, Prompted, PromptModel

if TYPE_CHECKING:
    from ....preprocess.preparation import Preparation


def token_text(model: PromptModel, key: str) -> str:
    """The text of the token whose id is the hyper-parameter `key`. UsageError if the tokenizer lacks it."""
    assert model.options.config is not None
    token, texts = model.options.config.values[key], model.tokenizer.vocabulary.texts
    if token is None or not 0 <= token < len(texts):
        why = f"the tokenizer has no token {token}, which stands for pictures"
        raise UsageError("E-LM-PLACEHOLDER", None, why, hint="Check that the tokenizer belongs to this model")
    return str(texts[token])


def before(text: str, markers: str) -> str:
    """A text after the markers of its pictures."""
    return f"{markers}\n{text}"


@dataclass(frozen=True)
class MarkedPictures:
    """A processor (see `Processor`) of pictures.

    Attributes:
        expand: prepares pictures: arrays for the encoder, and for each picture the text in place of its marker.
        marker: what users and chat templates write for a picture; by default the placeholder ``image_token``.
        unmarked: a text without markers with those of its pictures.
        finished: the last change of the text, from how many pictures it has; None for none.
    """

    expand: Callable[[PromptModel, Sequence[Any]], tuple[Arrays, list[str]]]
    marker: Callable[[PromptModel], str] = lambda model: token_text(model, "image_token")
    unmarked: Callable[[str, str], str] = before
    finished: Callable[[PromptModel, str, int], str] | None = None

    def __call__(
        self, model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
    ) -> Prompted:
        """The prompt; see `Processor`."""
        pieces = self.pieces(model, text, images, audio)
        arrays, expansions = self.expand(model, images) if len(images) else ({}, [])
        text = pieces[0] + "".join(each + after for each, after in zip(expansions, pieces[1:], strict=True))
        if self.finished is not None:
            text = self.finished(model, text, len(images))
        return Prompted(model.tokenizer.encode(text, add_bos=add_bos), arrays)

    def pieces(self, model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any]) -> list[str]:
        """The text between pictures, one piece more than there are. UsageError for another number of markers."""
        if len(audio):
            raise UsageError("E-LM-MODALITY", None, "the model takes no audio", hint="Pass pictures")
        marker = self.marker(model)
        if len(images) and marker not in text:
            text = self.unmarked(text, marker * len(images))
        pieces = text.split(marker)
        if len(pieces) - 1 != len(images):
            why = f"{counted(len(pieces) - 1, 'picture placeholder')} {marker} in the prompt for "
            why += counted(len(images), "picture") if len(images) else "no picture"
            raise UsageError("E-LM-PLACEHOLDER", None, why, hint="Pass one picture for each, with --image or images=")
        return pieces


def prepared(model: PromptModel, images: Sequence[Any], otherwise: Preparation | None = None) -> Arrays:
    """Pictures as the model's files state, else as `otherwise` does, as one batch. UnsupportedError if there is
    neither."""
    from ....preprocess.stated_preparation import stated_preparation

    preparation = stated_preparation(model.options.source, otherwise)
    feeds, _ = preparation.batch([preparation.prepare(image) for image in images])
    return feeds


def with_token_types(processor: Processor) -> Processor:
    """A processor that adds ``token_type_ids`` i64 [1, length], 1 for the placeholder ``image_token``."""

    def process(
        model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
    ) -> Prompted:
        assert model.options.config is not None
        prompt = processor(model, text, images, audio, add_bos=add_bos)
        types = np.array([prompt.ids]) == model.options.config.values["image_token"]
        return Prompted(prompt.ids, {**prompt.arrays, "token_type_ids": types.astype(np.int64)})

    return process
