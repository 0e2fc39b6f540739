"""Text ranking: documents by the probability that a language model answers yes to whether they fit a query."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph
from ..feature_extraction import ranked
from ..labels import score_function
from ..task_model import Progress
from ..text_inputs import TruncationWarning
from ..text_pipeline import TextPipeline
from .ranking_prompt import Written, ranking_prompt


class PromptWarning(TruncationWarning):
    """Documents were cut so that prompts fit the model."""

    def __str__(self) -> str:
        cut, documents, limit = self.args
        prompts = f"would make prompts of more than {counted(limit, 'token')}"
        return f"{counted(cut, 'document')} of {documents:,} {prompts}; the rest is not used"


class TextRanking(TextPipeline):
    """Asks a language model about each document; its head has a row for yes, and one for no."""

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top: int | None = None,
        batch: int = 32,
        progress: Progress | None = None,
        instruction: str | None = None,
    ) -> list[dict[str, Any]]:
        """Documents by the model's answer; see `TextModel.rerank`."""
        source = self._model.options.source
        write = ranking_prompt(Graph(files=[]) if source is None else source, self._inputs.tokenizer, instruction)
        prompts = [self._cut(write, query, document) for document in documents]
        long = sum(shortened for _, shortened in prompts)
        if long:
            warnings.warn(PromptWarning(long, len(documents), self._inputs.limit or 0), stacklevel=4)
        encodings = self._inputs.cut([ids for ids, _ in prompts])
        logits = self._rows(encodings, batch, progress, lambda feeds: self._model(**feeds)["logits"])
        if not len(documents):
            return []
        if logits.shape[-1] > 2:
            raise UsageError("E-MODEL-RERANK", None, "a reranker has one label, or yes and no", found=logits.shape[-1])
        odds = logits[:, 0] - logits[:, 1] if logits.shape[-1] == 2 else logits[:, 0]
        return ranked(score_function(self._model.options)(odds), documents, top)

    def _cut(self, write: Written, query: str, document: str) -> tuple[list[int], bool]:
        """The ids of a prompt, and whether its document was shortened to the tokens that the model takes.

        Raises UsageError for a query that leaves no tokens for a document.
        """
        tokenizer, limit = self._inputs.tokenizer, self._inputs.limit
        ids = tokenizer.encode(write(query, document), add_bos=False, add_eos=False)
        if limit is None or len(ids) <= limit:
            return ids, False
        whole = tokenizer.encode(document, add_bos=False, add_eos=False)
        kept = len(whole)
        while len(ids) > limit:
            kept -= len(ids) - limit
            if kept < 1:
                why = "the query is longer than the model's positions"
                raise UsageError(
                    "E-TEXT-LONG", None, why, expected=f"at most {counted(limit, 'token')} with its prompt"
                )
            ids = tokenizer.encode(write(query, tokenizer.decode(whole[:kept])), add_bos=False, add_eos=False)
        return ids, True


PIPELINE = TextRanking
