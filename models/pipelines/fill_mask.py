"""Fill-mask: the most probable tokens in place of a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...runtime.base.errors import UsageError
from .labels import softmax
from .task_model import Progress
from .text_pipeline import TextPipeline

TOP = 5


class FillMask(TextPipeline):
    """Fills masks."""

    def predict(
        self, inputs: str | Sequence[str], *, top: int = TOP, batch: int = 32, progress: Progress | None = None
    ) -> Any:
        """``token`` (its text), ``score``, ``id`` and ``sequence`` (the text with it) of the most probable tokens for
        a text's mask; for a text with several masks a list for each of them, for several texts a list of all this.

        Args:
            inputs: texts with the tokenizer's mask token, such as ``[MASK]`` or ``<mask>``.
            top: how many tokens.
            batch: texts of one run.
            progress: called with the number of texts done.

        Raises UsageError for a text without a mask and for one that is longer than the model's positions.
        """
        single = isinstance(inputs, str)
        listed = cast(Sequence[str], [inputs] if single else inputs)
        tokenizer = self._inputs.tokenizer
        mask = tokenizer.vocabulary.roles.get("mask")
        if mask is None:
            raise UsageError("E-TEXT-MASK", None, "the tokenizer has no mask token")
        encodings = self._inputs.whole(listed)
        for encoding in encodings:
            if mask not in encoding.ids:
                hint = f"Write {tokenizer.vocabulary.texts[mask]} where a token is wanted"
                raise UsageError("E-TEXT-MASK", None, "the text has no mask", hint=hint)
        found: list[Any] = [None] * len(listed)
        for rows, feeds in self._inputs.batches(encodings, batch, progress):
            logits = self._model(**feeds)["logits"]
            for row, given in zip(rows, logits, strict=True):
                found[row] = self._filled(list(encodings[row].ids), given, mask, top)
        return found[0] if single else found

    def run_order(self, inputs: Sequence[str]) -> list[int]:
        """Indices of inputs in the order in which they run, `batch` at a time."""
        return self._inputs.order(inputs)

    def _filled(self, ids: list[int], logits: np.ndarray, mask: int, top: int) -> Any:
        masks = [index for index, token in enumerate(ids) if token == mask]
        tokenizer, alone = self._inputs.tokenizer, len(masks) == 1
        found = []
        for index in masks:
            scores = softmax(logits[index][: len(tokenizer)])
            rows = []
            for token in map(int, np.argsort(-scores, kind="stable")[:top]):
                sequence = tokenizer.decode([*ids[:index], token, *ids[index + 1 :]], special=not alone)
                text = tokenizer.decode([token], special=True)
                rows.append({"token": text, "score": float(scores[token]), "id": token, "sequence": sequence})
            found.append(rows)
        return found[0] if alone else found


PIPELINE = FillMask
