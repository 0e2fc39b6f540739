"""Token classification: labeled spans of a text, word pieces of one label joined.

Source: the pipeline token-classification of transformers, with its aggregation ``simple``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..tokenizer.readers.tokenizer_json import Library, library_of
from .labels import label_names, softmax
from .task_model import Progress
from .text_pipeline import TextPipeline

OUTSIDE = "O"
"""The label of tokens that belong to no span."""


class TokenClassification(TextPipeline):
    """Finds labeled spans."""

    def predict(
        self, inputs: str | Sequence[str], *, top: int | None = None, batch: int = 32, progress: Progress | None = None
    ) -> Any:
        """``label``, ``score``, ``text``, ``start`` and ``end`` (in characters) of each span, in the order of the
        text; a list for each of several texts.

        Args:
            top: how many spans, those with the highest scores; None for all.
            batch: texts of one run.
            progress: called with the number of texts done.

        Raises UsageError for a text that is longer than the model's positions.
        """
        single = isinstance(inputs, str)
        listed = cast(Sequence[str], [inputs] if single else inputs)
        engine = library_of(self._inputs.tokenizer)
        encodings: Sequence[Any] = self._inputs.whole(listed)
        found: list[list[dict[str, Any]]] = [[] for _ in listed]
        for rows, feeds in self._inputs.batches(encodings, batch, progress):
            logits = self._model(**feeds)["logits"]
            names = label_names(self._model.options, logits.shape[-1])
            for row, scores in zip(rows, softmax(logits), strict=True):
                found[row] = _best(self._spans(listed[row], encodings[row], scores, names, engine), top)
        return found[0] if single else found

    def run_order(self, inputs: Sequence[str]) -> list[int]:
        """Indices of inputs in the order in which they run, `batch` at a time."""
        return self._inputs.order(inputs)

    def _spans(
        self, text: str, encoding: Any, scores: np.ndarray, names: Sequence[str], engine: Library
    ) -> list[dict[str, Any]]:
        """Neighboring tokens of one label, joined until a ``B-`` begins another span."""
        unknown = self._inputs.tokenizer.unk
        groups: list[list[dict[str, Any]]] = []
        last = ""
        for index, special in enumerate(encoding.special_tokens_mask):
            if special:
                continue
            best, (start, end) = int(scores[index].argmax()), encoding.offsets[index]
            prefix, _, rest = names[best].partition("-")
            tag = rest if prefix in ("B", "I") and rest else names[best]
            word = text[start:end] if encoding.ids[index] == unknown else encoding.tokens[index]
            token = {"tag": tag, "score": float(scores[index, best]), "word": word, "start": start, "end": end,
                     "name": names[best]}  # fmt: skip
            if groups and tag == last and not names[best].startswith("B-"):
                groups[-1].append(token)
            else:
                groups.append([token])
            last = tag
        return [
            {
                "label": group[0]["name"].split("-", 1)[-1],
                "score": float(np.mean([token["score"] for token in group])),
                "text": engine.joined([token["word"] for token in group]),
                "start": group[0]["start"],
                "end": group[-1]["end"],
            }
            for group in groups
            if group[0]["name"].split("-", 1)[-1] != OUTSIDE
        ]


def _best(spans: list[dict[str, Any]], top: int | None) -> list[dict[str, Any]]:
    if top is None:
        return spans
    chosen = sorted(spans, key=lambda span: -span["score"])[:top]
    return sorted(chosen, key=lambda span: span["start"])


PIPELINE = TokenClassification
