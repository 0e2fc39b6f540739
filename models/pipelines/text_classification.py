"""Text classification: labels of texts and of pairs of texts, and documents by a cross-encoder's score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...runtime.base.errors import UsageError
from ..tokenizer.core.encoding import Text
from ..tokenizer.readers.locate import settings
from .feature_extraction import ranked
from .labels import configured, label_names, sigmoid, softmax
from .sentence_modules import ACTIVATIONS, SETTINGS
from .text_model import Progress
from .text_pipeline import TextPipeline

Pair = Text | Mapping[str, str]
"""A text, two texts, or ``{"text": ..., "text_pair": ...}``."""
TOP = 5
FUNCTIONS = {
    "regression": lambda logits: np.asarray(logits, np.float32),
    "multi_label_classification": sigmoid,
    "single_label_classification": softmax,
}
"""What makes scores of logits, by config.json's `problem_type`."""


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
    ) -> Any:
        """``label`` and ``score`` of the most probable labels; a list for each of several texts.

        Args:
            inputs: texts, or pairs of texts.
            context: the second text of every pair.
            top: how many labels, None for all.
            batch: texts of one run.
            progress: told how many texts are done.
        """
        single = isinstance(inputs, str | tuple | Mapping)
        listed = cast(Sequence[Pair], [inputs] if single else inputs)
        logits = self._logits([_text(each, context) for each in listed], batch, progress)
        names = label_names(self._model.options, logits.shape[-1]) if len(listed) else []
        found = [
            [{"label": names[place], "score": float(row[place])} for place in np.argsort(-row, kind="stable")[:top]]
            for row in self._scores(logits)
        ]
        return found[0] if single else found

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
        logits = self._logits([(query, document) for document in documents], batch, progress)
        if len(documents) and logits.shape[-1] != 1:
            raise UsageError(
                "E-MODEL-RERANK",
                None,
                "a reranker has one label",
                found=", ".join(label_names(self._model.options, logits.shape[-1])[:8]),
                hint="Use predict for the labels of pairs",
            )
        return ranked(self._activation()(logits[:, 0]) if len(documents) else np.empty(0), documents, top)

    def _logits(self, texts: Sequence[Text], batch: int, progress: Progress | None) -> np.ndarray:
        return self._rows(self._inputs.cut(texts), batch, progress, lambda feeds: self._model(**feeds)["logits"])

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        kind = configured(self._model.options).get("problem_type")
        if kind not in FUNCTIONS or (kind == "single_label_classification" and logits.shape[-1] == 1):
            kind = "multi_label_classification" if logits.shape[-1] == 1 else "single_label_classification"
        return FUNCTIONS[kind](logits) if logits.size else logits

    def _activation(self) -> Any:
        """What sentence-transformers applies to a cross-encoder's logit: the sigmoid unless the files say another."""
        said = configured(self._model.options)
        own = said.get("sentence_transformers")
        names = [
            own.get("activation_fn") if isinstance(own, Mapping) else None,
            said.get("sbert_ce_default_activation_function"),
            settings(self._model.options.source, SETTINGS).get("activation_fn") if self._model.options.source else None,
        ]
        name = next((str(name) for name in names if name), "Sigmoid").rpartition(".")[2]
        return ACTIVATIONS.get(name, sigmoid)


def _text(given: Pair, context: str | None) -> Text:
    if isinstance(given, Mapping):
        first, second = given.get("text"), given.get("text_pair", context)
    else:
        first, second = (given, context) if isinstance(given, str) else given
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise UsageError("E-MODEL-INPUT", None, "a text is expected, or a pair of texts", found=type(given).__name__)
    return first if second is None else (first, second)


PIPELINE = TextClassification
