"""Visual question answering: what a model answers to a question about pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..image.image_pipeline import ImagePipeline, listed
from ..task_model import Progress
from .picture_text_model import PictureTextModel

ANSWER = "answer"
"""The key of an answer, as transformers' pipeline has it."""


class VisualQuestionAnswering(ImagePipeline):
    """Answers a question about pictures."""

    _model: PictureTextModel

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        question: str | None = None,
        batch: int = 8,
        max_new_tokens: int | None = None,
        num_beams: int | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``answer`` to a question about a picture, as a list of one; a list for each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            question: what is asked about each picture.
            batch: pictures of one run.
            max_new_tokens, num_beams: as of `TextToText`; None for what the model's files state.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with how many pictures are done, and of how many.

        Raises UsageError without a question.
        """
        if not (question or "").strip():
            hint = 'Pass --question "How many cats are there?"'
            raise UsageError("E-OPTION", None, "missing a question about the picture", hint=hint)
        single, pictures = listed(inputs)
        stated = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
        options = {name: value for name, value in stated.items() if value is not None}
        answers: list[list[dict[str, str]]] = []
        for rows, pixels, _ in self._prepared(pictures, batch, preparation):
            written = self._model.write(pixels, [str(question)] * len(rows), **options)
            answers += [[{ANSWER: each.text.strip()}] for each in written]
            if progress is not None:
                progress(len(answers), len(pictures))
        return answers[0] if single else answers


PIPELINE = VisualQuestionAnswering
