"""Visual question answering: what a model answers to a question about pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..task_model import Progress
from .image_to_text import ImageToText

ANSWER = "answer"
"""The key of an answer, as transformers' pipeline has it."""


class VisualQuestionAnswering(ImageToText):
    """Answers a question about pictures."""

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
        options = {"max_new_tokens": max_new_tokens, "num_beams": num_beams}
        return self._written(ANSWER, question, inputs, batch, options, preparation, progress)


PIPELINE = VisualQuestionAnswering
