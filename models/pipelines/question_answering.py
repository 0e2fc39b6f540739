"""Question answering: the span of a context that answers a question.

Source: the pipeline question-answering of transformers 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...runtime.base.errors import UsageError
from ..tokenizer.readers.tokenizer_json import library_of
from .labels import softmax
from .task_model import Progress
from .text_pipeline import TextPipeline

WINDOW, STRIDE = 384, 128
"""Tokens that are read at a time, and that neighboring windows of a long context share, at most."""
LONGEST = 15
"""Tokens of an answer."""
HIDDEN = -10000.0
"""The logit of tokens that are not part of the context."""
CANDIDATES = 10
"""Spans of a window that are compared beyond twice those that are asked for."""
Question = str | tuple[str, str] | Mapping[str, str]
"""A question, a question and its context, or ``{"question": ..., "context": ...}``."""


class QuestionAnswering(TextPipeline):
    """Answers questions."""

    def predict(
        self,
        inputs: Question | Sequence[Question],
        *,
        context: str | None = None,
        top: int = 1,
        no_answer: bool = False,
        longest: int = LONGEST,
        batch: int = 32,
        progress: Progress | None = None,
    ) -> Any:
        """``answer``, ``score``, ``start`` and ``end`` (in characters of the context) of the most probable answers; a
        list for each of several questions. A long context is read in windows.

        Args:
            inputs: questions, with their contexts where `context` is None.
            context: the text that holds the answers.
            top: how many answers.
            no_answer: whether there may be no answer: an empty one, with its score.
            longest: tokens of an answer, at most.
            batch: windows of one run.
            progress: called with the number of windows of a question done.
        """
        single = isinstance(inputs, str | tuple | Mapping)
        listed = cast(Sequence[Question], [inputs] if single else inputs)
        pairs = [_pair(each, context) for each in listed]
        found = [self._answers(*pair, (top, longest, no_answer), batch, progress) for pair in pairs]
        return found[0] if single else found

    def _answers(
        self, question: str, context: str, wanted: tuple[int, int, bool], batch: int, progress: Progress | None
    ) -> list[dict[str, Any]]:
        top, longest, no_answer = wanted
        limit = min(self._inputs.limit or WINDOW, WINDOW)
        engine = library_of(self._inputs.tokenizer)
        windows: Sequence[Any] = engine.windows(question, context, limit, min(limit // 2, STRIDE))
        results: list[Any] = [None] * len(windows)
        for rows, feeds in self._inputs.batches(windows, batch, progress):
            outputs = self._model(**feeds)
            for index, row in enumerate(rows):
                length = len(windows[row].ids)
                results[row] = [outputs[name][index][:length] for name in ("start_logits", "end_logits")]
        answers: list[dict[str, Any]] = []
        empty = 1.0
        for window, (start, end) in zip(windows, results, strict=True):
            spans, null = _spans(window, start, end, 2 * top + CANDIDATES, longest)
            empty = min(empty, null)
            for first, last, score in spans:
                _add(answers, context, *_characters(window, first, last), score)
        if no_answer:
            answers.append({"answer": "", "score": empty, "start": 0, "end": 0})
        return sorted(answers, key=lambda answer: -answer["score"])[:top]


def _pair(given: Question, context: str | None) -> tuple[str, str]:
    if isinstance(given, Mapping):
        question, about = given.get("question"), given.get("context", context)
    else:
        question, about = (given, context) if isinstance(given, str) else given
    if not isinstance(question, str) or not isinstance(about, str) or not question.strip() or not about.strip():
        why = "a question and a context are needed"
        raise UsageError("E-MODEL-INPUT", None, why, hint="Pass context=..., or --context on the command line")
    return question, about


def _spans(
    window: Any, start: np.ndarray, end: np.ndarray, count: int, longest: int
) -> tuple[list[tuple[int, int, float]], float]:
    """(first token, last token, score) of the best spans of a window, and the score of no answer."""
    allowed = np.array([sequence == 1 for sequence in window.sequence_ids])
    allowed[0] = True  # the first token stands for no answer
    first, last = (softmax(np.where(allowed, logits, HIDDEN)) for logits in (start, end))
    null = float(first[0] * last[0])
    first[0] = last[0] = 0
    scores = np.tril(np.triu(np.outer(first, last)), longest - 1).ravel()
    best = np.argsort(-scores, kind="stable")[:count]
    pairs = [(*divmod(int(index), len(first)), float(scores[index])) for index in best]
    return [(a, b, score) for a, b, score in pairs if a and b and allowed[a] and allowed[b]], null


def _characters(window: Any, first: int, last: int) -> tuple[int, int]:
    """Characters of the whole words from one token to another."""
    words = window.token_to_word(first), window.token_to_word(last)
    if None in words:
        return window.offsets[first][0], window.offsets[last][1]
    spans = [window.word_to_chars(word, 1) for word in words]
    if None in spans:
        return window.offsets[first][0], window.offsets[last][1]
    return spans[0][0], spans[1][1]


def _add(answers: list[dict[str, Any]], context: str, start: int, end: int, score: float) -> None:
    """Add an answer, or its score to that of the same text."""
    text = context[start:end]
    same = next((answer for answer in answers if answer["answer"].lower() == text.lower()), None)
    if same is None:
        answers.append({"answer": text, "score": score, "start": start, "end": end})
    else:
        same["score"] += score


PIPELINE = QuestionAnswering
