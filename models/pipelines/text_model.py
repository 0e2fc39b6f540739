"""Base of models that take texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.contract.architecture import TEXT_RANKING
from ...runtime.ir.graph import Graph
from ...runtime.ir.registry import onnx
from ..tokenizer.core.encoding import Text
from .task_model import Progress, TaskModel

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.session import Session
    from ..tokenizer import Tokenizer

TextInput = Text | Sequence[int]
"""A text, a pair of texts, or token ids."""


class TextModel(TaskModel):
    """A model of one graph that takes token ids."""

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. UsageError if it is missing."""
        if self.options.tokenizer is None:
            raise UsageError(
                "E-LM-TOKENIZER",
                None,
                "the model has no tokenizer",
                hint="Load the model by its path, or pass token ids",
            )
        return self.options.tokenizer()

    @property
    def text_limit(self) -> int | None:
        """The most tokens of a text that `embed` and `predict` use, special ones included; None for any number."""
        limit: int | None = getattr(self._pipeline, "limit", None)
        return limit

    @property
    def packs(self) -> bool:
        """Whether `packed_session` computes hidden states of texts without padding."""
        return False

    def packed_session(self, *, single_threaded: bool) -> Session:
        """The session that computes hidden states [1, tokens, width] of the feeds of `TextInputs.packed_batches`.

        Args:
            single_threaded: whether a run uses one thread, so that others can run at the same time.
        """
        raise NotImplementedError

    @memory_limited
    def embed(
        self,
        texts: TextInput | Sequence[TextInput],
        batch: int = 32,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        dim: int | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Vectors of texts, f32 [texts, width], or [width] for a single text, with pooling, further layers and
        normalization as the model's files say.

        Args:
            texts: texts, or the token ids of each.
            batch: texts of one run; they are run in the order of their lengths.
            prompt_name: which of the model's prompts goes before each text, its default one if None; prompt: another
                text.
            pooling: ``cls``, ``max``, ``mean``, ``mean_sqrt_len_tokens``, ``weightedmean`` or ``lasttoken``, or
                several whose vectors are joined; None for the model's.
            normalize: whether vectors have length 1; None for what the model's files say.
            dim: elements that are kept of each vector (Matryoshka); None for what the model's files say. As in
                sentence-transformers, a shortened vector has length 1 only if `normalize` is true.
            progress: called with the number of texts done.

        Texts that are too long are cut, with a `TruncationWarning`. Raises UsageError if the model makes no vectors.
        """
        found: np.ndarray = self._verb("embed")(
            texts,
            batch,
            prompt_name=prompt_name,
            prompt=prompt,
            pooling=pooling,
            normalize=normalize,
            dim=dim,
            progress=progress,
        )
        return found

    @memory_limited
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
        """Documents by how well they answer a query, the best first: ``index``, ``score`` and ``text`` of each.

        Args:
            top: how many, None for all.
            batch: documents of one run.
            progress: called with the number of documents done.
            instruction: what makes a document fit, for language models that answer yes or no; None for what their
                files say.

        Raises UsageError if the model compares no texts, and for an instruction to other models than these.
        """
        told = {}
        if instruction is not None:
            if self.task != TEXT_RANKING:
                hint = f"Load a language model with task={TEXT_RANKING!r}"
                raise UsageError("E-OPTION", None, f"models for {self.task} take no instruction", hint=hint)
            told = {"instruction": instruction}
        found: list[dict[str, Any]] = self._verb("rerank")(
            query, documents, top=top, batch=batch, progress=progress, **told
        )
        return found


def embedding_rows(graph: Graph) -> int | None:
    """Rows of the weight that token ids select from, None if it is not known."""
    ids = graph.values.get("input_ids")
    weight = next(
        (
            node.inputs[0]
            for node in graph.nodes
            if node.op is onnx.Gather and len(node.inputs) > 1 and node.inputs[1] is ids
        ),
        None,
    )
    held = graph.weights.get(weight.name) if weight is not None else None
    return held.shape[0] if held is not None and held.shape else None
