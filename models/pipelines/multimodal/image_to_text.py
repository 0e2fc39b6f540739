"""Image to text: captions of pictures, or the text that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..image.image_pipeline import ImagePipeline, listed
from ..task_model import Progress
from .picture_text_model import PictureTextModel

TEXT = "generated_text"
"""The key of a text, as transformers' pipeline has it."""


class ImageToText(ImagePipeline):
    """Writes the text of pictures."""

    _model: PictureTextModel

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        batch: int = 8,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``generated_text`` of a picture, as a list of one; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            batch: pictures of one run.
            max_new_tokens, num_beams: as of `TextToText`; None for what the model's files state.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with how many pictures are done, and of how many.
        """
        options = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
        return self._written(TEXT, None, inputs, batch, options, preparation, progress)

    def _written(
        self,
        key: str,
        prompt: str | None,
        inputs: Picture | Sequence[Picture],
        batch: int,
        options: Mapping[str, int | None],
        preparation: Preparation | None,
        progress: Progress | None,
    ) -> Any:
        """The texts of pictures under a key; `prompt`: what is asked about each picture."""
        single, pictures = listed(inputs)
        given = {name: value for name, value in options.items() if value is not None}
        texts: list[list[dict[str, str]]] = []
        for rows, pixels, _ in self._prepared(pictures, batch, preparation):
            prompts = () if prompt is None else ([prompt] * len(rows),)
            texts += [[{key: each.text.strip()}] for each in self._model.write(pixels, *prompts, **given)]
            if progress is not None:
                progress(len(texts), len(pictures))
        return texts[0] if single else texts


PIPELINE = ImageToText
