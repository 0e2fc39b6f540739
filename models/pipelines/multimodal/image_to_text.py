"""Image to text: captions of pictures, or the text that they show."""

from __future__ import annotations

from collections.abc import Sequence
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
        single, pictures = listed(inputs)
        stated = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
        options = {name: value for name, value in stated.items() if value is not None}
        texts: list[list[dict[str, str]]] = []
        for _, pixels, _ in self._prepared(pictures, batch, preparation):
            texts += [[{TEXT: each.text.strip()}] for each in self._model.write(pixels, **options)]
            if progress is not None:
                progress(len(texts), len(pictures))
        return texts[0] if single else texts


PIPELINE = ImageToText
