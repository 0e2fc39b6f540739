"""Image and text to text: the answer of a vision-language model to a question about pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ...preprocess.picture import Picture
from ..image.image_pipeline import listed
from ..task_model import Progress
from .multimodal_language_model import MultimodalLanguageModel
from .prompts.prompt_rules import Prompted

TEXT = "generated_text"
"""The key of an answer, as transformers' pipeline has it."""
MAX_TOKENS = 512
"""Tokens of an answer, unless it says otherwise."""


class ImageTextToText:
    """Answers a question about each of several pictures."""

    def __init__(self, model: MultimodalLanguageModel) -> None:
        self._model = model

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        question: str | None = None,
        batch: int = 8,
        max_new_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``generated_text`` about a picture, as a list of one; a list for each of several pictures. The most probable
        tokens after a user's message where the model has a chat template.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            question: the text about each picture; None for the family's own, such as that of models that read text.
            batch: pictures of one run.
            max_new_tokens: the most tokens of an answer, `MAX_TOKENS` if None.
            progress: called with how many pictures are done, and of how many.

        Raises UsageError without a question, if the family has no own one.
        """
        asked = question if (question or "").strip() else self._model.rules.question
        if not asked:
            hint = 'Pass --question "What is this?"'
            raise UsageError("E-OPTION", None, "missing a question about the picture", hint=hint)
        single, pictures = listed(inputs)
        limit = MAX_TOKENS if max_new_tokens is None else max_new_tokens
        texts: list[list[dict[str, str]]] = []
        for start in range(0, len(pictures), batch):
            prompts = [self._prompt(picture, asked) for picture in pictures[start : start + batch]]
            made = self._model.generate_batch(prompts, max_tokens=limit, temperature=0)
            texts += [[{TEXT: each.text.strip()}] for each in made]
            if progress is not None:
                progress(len(texts), len(pictures))
        return texts[0] if single else texts

    def _prompt(self, picture: Picture, question: str) -> Prompted:
        if not self._model.tokenizer.templates:
            return self._model.prompted(question, [picture])
        parts = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
        return self._model.chat_prompt([{"role": "user", "content": parts}])


PIPELINE = ImageTextToText
