"""Text classification: labels of texts and of pairs of texts, and documents by a cross-encoder's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...runtime.base.errors import UsageError
from ..tokenizer.core.encoding import Text
from .feature_extraction import ranked
from .labels import configured, label_names, score_function, sigmoid, softmax
from .task_model import Progress
from .text_pipeline import TextPipeline

Pair = Text | Mapping[str, str]
"""A text, two texts, or ``{"text": ..., "text_pair": ...}``."""
TOP = 5
HYPOTHESIS, ENTAILMENT = "This example is {}.", "entail"
"""The hypothesis for a class, and how the label begins that confirms it."""
FUNCTIONS = {
    "regression": lambda logits: np.asarray(logits, np.float32),
    "multi_label_classification": sigmoid,
    "single_label_classification": softmax,
}
"""Functions from logits to scores, by config.json's `problem_type`."""


class TextClassification(TextPipeline):
    """Finds the labels of texts."""

    def predict(
        self,
        inputs: Pair | Sequence[Pair],
        *,
        context: str | None = None,
        top: int | None = TOP,
        batch: int = 32,
        progress: Progress | None = None,
        classes: str | Sequence[str] | None = None,
    ) -> Any:
        """``label`` and ``score`` of the most probable labels; a list for each of several texts.

        Args:
            inputs: texts, or pairs of texts.
            context: the second text of every pair.
            top: how many labels, None for all.
            batch: texts of one run.
            progress: called with the number of texts done.
            classes: labels in place of the model's own, which has to be one of natural language inference: their scores
                are those with which a text entails "This example is LABEL." (Yin et al. 2019, arXiv:1909.00161). A
                text of names divided by commas, or a list.

        Raises UsageError for `classes` with a model that has no label ``entailment``.
        """
        single = isinstance(inputs, str | tuple | Mapping)
        listed = cast(Sequence[Pair], [inputs] if single else inputs)
        if classes is not None:
            named = [name.strip() for name in (classes.split(",") if isinstance(classes, str) else classes)]
            own = self._of_classes([_text(each, None) for each in listed], named, batch, progress)
            ranks = [np.argsort(-row, kind="stable")[:top] for row in own]
            chosen = [
                [{"label": named[index], "score": float(row[index])} for index in rank]
                for row, rank in zip(own, ranks, strict=True)
            ]
            return chosen[0] if single else chosen
        logits = self._logits([_text(each, context) for each in listed], batch, progress)
        names = label_names(self._model.options, logits.shape[-1]) if len(listed) else []
        found = [
            [{"label": names[index], "score": float(row[index])} for index in np.argsort(-row, kind="stable")[:top]]
            for row in self._scores(logits)
        ]
        return found[0] if single else found

    def run_order(self, inputs: Sequence[Pair], context: str | None = None) -> list[int]:
        """Indices of inputs in the order in which they run, `batch` at a time."""
        return self._inputs.order([_text(each, context) for each in inputs])

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top: int | None = None,
        batch: int = 32,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """Documents by the score of the pair with the query; see `TextModel.rerank`."""
        declared = next((value.shape for value in self._model.graph.outputs if value.name == "logits"), None)
        if declared is not None and isinstance(declared[-1], int):
            self._check_single(declared[-1])
        logits = self._logits([(query, document) for document in documents], batch, progress)
        if len(documents):
            self._check_single(logits.shape[-1])
        return ranked(
            score_function(self._model.options)(logits[:, 0]) if len(documents) else np.empty(0), documents, top
        )

    def _check_single(self, labels: int) -> None:
        if labels != 1:
            raise UsageError(
                "E-MODEL-RERANK",
                None,
                "a reranker has one label",
                found=", ".join(label_names(self._model.options, labels)[:8]),
                hint="Use predict for the labels of pairs",
            )

    def _of_classes(
        self, texts: Sequence[Text], names: Sequence[str], batch: int, progress: Progress | None
    ) -> np.ndarray:
        """Scores [texts, names] of entailment: they sum to one; of one name against contradiction."""
        if not all(names) or not names or not all(isinstance(text, str) for text in texts):
            raise UsageError("E-OPTION", None, "classes takes texts without a context, and names that are not empty")
        pairs = [(cast(str, text), HYPOTHESIS.format(name)) for text in texts for name in names]
        logits = self._logits(pairs, batch, progress)
        labels = label_names(self._model.options, logits.shape[-1]) if pairs else []
        place = next((i for i, label in enumerate(labels) if label.lower().startswith(ENTAILMENT)), None)
        if place is None:
            hint = f"Its labels: {', '.join(labels[:8])}"
            raise UsageError("E-MODEL-LABELS", None, f"classes needs a model with a label {ENTAILMENT}ment", hint=hint)
        grid = logits.reshape(len(texts), len(names), -1)
        if len(names) > 1:
            return softmax(grid[..., place])
        return softmax(grid[..., [0 if place else -1, place]])[..., 1]

    def _logits(self, texts: Sequence[Text], batch: int, progress: Progress | None) -> np.ndarray:
        return self._rows(self._inputs.cut(texts), batch, progress, lambda feeds: self._model(**feeds)["logits"])

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        kind = configured(self._model.options).get("problem_type")
        if kind not in FUNCTIONS or (kind == "single_label_classification" and logits.shape[-1] == 1):
            kind = "multi_label_classification" if logits.shape[-1] == 1 else "single_label_classification"
        return FUNCTIONS[kind](logits) if logits.size else logits


def _text(given: Pair, context: str | None) -> Text:
    if isinstance(given, Mapping):
        first, second = given.get("text"), given.get("text_pair", context)
    else:
        first, second = (given, context) if isinstance(given, str) else given
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise UsageError("E-MODEL-INPUT", None, "a text is expected, or a pair of texts", found=type(given).__name__)
    return first if second is None else (first, second)


PIPELINE = TextClassification
