"""A runnable late interaction model: a vector of each token of queries and pages, and pages by MaxSim."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.ir.graph import Graph
from ...preprocess.picture import Picture
from ..feature_extraction import ranked
from ..multimodal.multimodal_language_model import MultimodalLanguageModel, joined
from ..multimodal.prompts.prompt_rules import DECODER_MODEL, Prompted, PromptRules
from ..task_model import Progress, TaskModel
from .retrieval_prompts import EMBEDDINGS, RetrievalPrompts, stated_prompts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.contract.architecture import RunOptions
    from ...tokenizer import Tokenizer

MAX_TOKENS = 4096
"""Tokens of one run, where several inputs share it."""


class LateInteractionModel(TaskModel):
    """ColPali and its relatives.

    Args:
        graphs: of the encoders, the embeddings and the decoder, by name.
        options: threads, device, activations, hyper-parameters and tokenizer.
        rules: how the family puts pictures among tokens.
        prompts: what goes around queries, and with pages.
    """

    takes = "pages_and_queries"

    def __init__(
        self, graphs: Mapping[str, Graph], options: RunOptions, rules: PromptRules, prompts: RetrievalPrompts
    ) -> None:
        self.language_model = MultimodalLanguageModel(graphs, options, rules)
        self.graph, self.options, self.rules, self._prompts = graphs[DECODER_MODEL], options, rules, prompts

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self.language_model.graphs

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. UsageError if it is missing."""
        return self.language_model.tokenizer

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("embed", "rerank")

    @memory_limited
    def __call__(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, **arrays: ArrayLike
    ) -> dict[str, np.ndarray]:
        """``embeddings`` f32 [batch, length, width]: vectors of length 1, zeros for padding.

        Args:
            input_ids: integers [batch, length] or [length], with a placeholder for each patch of a page.
            attention_mask: 1 for tokens, 0 for padding; None if all are tokens.
            arrays: what transformers' processor makes of pages: ``pixel_values`` ...

        Raises UsageError for arrays that the model does not take, and for pages that do not fit the placeholders.
        """
        found = self.language_model(input_ids, attention_mask, **arrays)[EMBEDDINGS]
        mask = 1 if attention_mask is None else np.atleast_2d(np.asarray(attention_mask, np.float32))[..., None]
        return {EMBEDDINGS: found * mask}

    @memory_limited
    def embed(
        self,
        inputs: str | Picture | Sequence[str | Picture] | None = None,
        batch: int = 8,
        *,
        images: Picture | Sequence[Picture] | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Vectors of queries and pages: a list with a matrix f32 [tokens, width] for each input, or the matrix of a
        single one.

        Args:
            inputs: queries as texts, and pages as `pathlib.Path`, encoded bytes, arrays of bytes [height, width,
                channels] or images of Pillow, in any order.
            images: pages in place of `inputs`, where a string is a path.
            batch: the most inputs of one run.
            progress: called with how many inputs are done, and of how many.

        Raises UsageError unless one of `inputs` and `images` is given, FormatError for damaged pictures.
        """
        if (inputs is None) == (images is None):
            why = "embed takes queries and pages, or images"
            raise UsageError("E-OPTION", None, why, hint="Call it once for each")
        given: Any = images if inputs is None else inputs
        single = not isinstance(given, list | tuple)
        listed = [given] if single else list(given)
        matrices: list[np.ndarray] = []
        for start in range(0, len(listed), max(batch, 1)):
            some = listed[start : start + max(batch, 1)]
            for prompts in _runs([self.prompted(each, page=images is not None) for each in some]):
                matrices += self._vectors(prompts)
                if progress is not None:
                    progress(len(matrices), len(listed))
        return matrices[0] if single else matrices

    @memory_limited
    def rerank(
        self,
        query: str,
        documents: Sequence[Picture],
        *,
        top: int | None = None,
        batch: int = 8,
        progress: Progress | None = None,
        instruction: str | None = None,
    ) -> list[dict[str, Any]]:
        """Pages by how well they answer a query, the best first: ``index``, ``score`` and ``text`` of each, which is
        the path of a page that has one, else empty. The score is MaxSim: for each token of the query the largest
        product with a token of the page, summed.

        Args:
            documents: pages, as paths, encoded bytes, arrays of bytes [height, width, channels] or images of Pillow.
            top: how many, None for all.
            batch: the most pages of one run.
            progress: called with how many pages are done, and of how many.

        Raises UsageError for an instruction: these models take none.
        """
        if instruction is not None:
            raise UsageError("E-OPTION", None, f"models for {self.task} take no instruction", hint="Leave it out")
        asked = self.embed([query])[0]
        pages = self.embed(images=list(documents), batch=batch, progress=progress)
        scores = np.array([max_similarity(asked, page) for page in pages], np.float32)
        names = [os.fspath(page) if isinstance(page, str | os.PathLike) else "" for page in documents]
        return ranked(scores, names, top)

    @functools.cached_property
    def _texts(self) -> RetrievalPrompts:
        """The prompts, as the model's files say."""
        return stated_prompts(self._prompts, self.options.source)

    def prompted(self, given: str | Picture, *, page: bool = False) -> Prompted:
        """Token ids and arrays of a query or a page, as transformers' processor makes them.

        Args:
            page: whether a string is the path of a page.
        """
        texts = self._texts
        if page or not isinstance(given, str):
            return self.language_model.prompted(texts.visual_prompt_prefix, [given])
        pad = self.tokenizer.role_names().get("pad_token", "")
        return self.language_model.prompted(f"{texts.query_prefix}{given}{pad * texts.padding}")

    def _vectors(self, prompts: Sequence[Prompted]) -> list[np.ndarray]:
        """The matrices of prompts that share a run."""
        model, longest = self.language_model, max(len(prompt.ids) for prompt in prompts)
        rows = [model.embedded(np.array([prompt.ids], np.int64), None, prompt.arrays) for prompt in prompts]
        ids = np.zeros((len(rows), longest), np.int64)
        vectors, _ = model.step(ids, model.start_with(joined(rows, longest)))
        return [
            np.array(row[longest - len(prompt.ids) :], np.float32) for row, prompt in zip(vectors, prompts, strict=True)
        ]


def max_similarity(query: np.ndarray, page: np.ndarray) -> float:
    """MaxSim of two matrices [tokens, width]."""
    return float((query @ page.T).max(axis=1).sum())


def _runs(prompts: Sequence[Prompted]) -> Iterator[Sequence[Prompted]]:
    """Prompts by the runs that they share: at most `MAX_TOKENS`, padding included, or one prompt."""
    longest = max(len(prompt.ids) for prompt in prompts)
    size = max(1, MAX_TOKENS // longest)
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]
