"""Feature extraction: vectors of texts, and documents by their similarity to a query."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.nearest_name import did_you_mean
from ..tokenizer.core.encoding import Encoding
from .labels import configured
from .pooling import MODES, normalized, pooled
from .sentence_modules import SentenceModules, sentence_modules
from .similarity import similarities
from .task_model import Progress
from .text_model import TextInput
from .text_pipeline import TextPipeline, TextRun

HIDDEN, WHOLE = ("last_hidden_state", "token_embeddings"), "sentence_embedding"
"""Names of outputs: hidden states, and vectors that the graph pools itself."""
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Names of prompts by what they go before."""


class FeatureExtraction(TextPipeline):
    """Makes vectors of texts."""

    @functools.cached_property
    def modules(self) -> SentenceModules:
        """Pooling and further layers, as the model's files say."""
        options = self._model.options
        said = configured(options)
        classes = said.get("architectures")
        states = any(name.startswith("past_") for name in self._model.input_names)
        named = isinstance(classes, list) and bool(classes) and str(classes[0]).endswith("ForCausalLM")
        causal = (states or named) and False not in (said.get("is_causal"), self._config.get("causal"))
        found = sentence_modules(options, causal=causal)
        if self._config.get("skips_prompt"):
            found = replace(found, include_prompt=False)
        if self._config.get("normalized") and normalized not in found.stages:
            found = replace(found, stages=(*found.stages, normalized))
        return found

    @property
    def _config(self) -> dict[str, Any]:
        """The model's hyper-parameters, empty if they are not known."""
        config = self._model.options.config
        return {} if config is None else config.values

    @functools.cached_property
    def _closing(self) -> str:
        """The tokens appended to every text."""
        vocabulary = self._inputs.tokenizer.vocabulary
        end = vocabulary.roles.get("eos") if self._config.get("closed") else None
        return "" if end is None else vocabulary.texts[end]

    def _stated_length(self) -> int | None:
        return self.modules.length

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
        """Vectors; see `TextModel.embed`."""
        single = isinstance(texts, str)
        listed = cast(Sequence[TextInput], [texts] if single else texts)
        before = self._prompt(prompt_name, prompt)
        encodings = self._inputs.cut([self._prepared(text, before) for text in listed])
        packed, padded = self._computations(before, pooling, normalize, dim)
        if self._model.packs and self._inputs.packable(encodings):
            found = self._packed_rows(encodings, batch, progress, packed)
        else:
            found = self._rows(encodings, batch, progress, padded)
        return found[0] if single else found

    def runs(
        self, texts: Sequence[TextInput], batch: int = 32, *, prompt_name: str | None = None, prompt: str | None = None
    ) -> Iterator[TextRun]:
        """The runs of `embed`, for other processes to compute by `vectors`: the same batches, the same bytes."""
        before = self._prompt(prompt_name, prompt)
        encodings = self._inputs.cut([self._prepared(text, before) for text in texts])
        packed = self._model.packs and self._inputs.packable(encodings)
        return self._packed_runs(encodings, batch) if packed else self._padded_runs(encodings, batch)

    def vectors(
        self,
        runs: Sequence[TextRun],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        dim: int | None = None,
    ) -> list[np.ndarray]:
        """Vectors of the texts of each of the `runs`, f32 [texts, width]; options as of `embed`."""
        packed, padded = self._computations(self._prompt(prompt_name, prompt), pooling, normalize, dim)
        if runs and runs[0].lengths is not None:
            return [made for _, made in self._packed_outputs(runs, packed)]
        return [np.asarray(padded(run.feeds), np.float32) for run in runs]

    def _computations(
        self, before: str, pooling: str | Sequence[str] | None, normalize: bool | None, dim: int | None
    ) -> tuple[Callable[[np.ndarray, np.ndarray | None], np.ndarray], Callable[[dict[str, np.ndarray]], np.ndarray]]:
        """Pooling of hidden states to vectors, from states, mask and feeds of padded texts."""
        modes, skipped, kept = self._modes(pooling), self._skipped(before), self._kept(dim)

        def vectors(hidden: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
            return self._shortened(self._finished(pooled(hidden, mask, modes, skipped), normalize), kept, normalize)

        return vectors, lambda feeds: self._vectors(feeds, vectors, kept, normalize)

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top: int | None = None,
        batch: int = 32,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """Documents by the similarity of their vectors to the query's; see `TextModel.rerank`."""
        asked = self.embed([query], batch, prompt_name=self._named(QUERY))
        given = self.embed(documents, batch, prompt_name=self._named(DOCUMENT), progress=progress)
        scores = similarities(asked, given, self.modules.similarity)[0] if len(documents) else np.empty(0)
        return ranked(scores, documents, top)

    def _named(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.modules.prompts), None)

    def _modes(self, pooling: str | Sequence[str] | None) -> Sequence[str]:
        modes = self.modules.pooling if pooling is None else (pooling,) if isinstance(pooling, str) else pooling
        for mode in modes:
            if mode not in MODES:
                raise UsageError(
                    "E-OPTION", None, f"unknown pooling {mode!r}", hint=did_you_mean(mode, MODES, ", ".join(MODES))
                )
        return modes

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        """The text that goes before each text."""
        name = self.modules.default_prompt if name is None and prompt is None else name
        if prompt is not None or name is None:
            return prompt or ""
        known = self.modules.prompts
        if name not in known:
            names = f"It has: {', '.join(known)}" if known else "Its files name no prompts"
            raise UsageError("E-TEXT-PROMPT", None, f"the model has no prompt {name!r}", hint=names)
        return known[name]

    def _prepared(self, text: TextInput, before: str) -> TextInput:
        if not isinstance(text, str):
            return text
        text = before + text + self._closing
        return text.lower() if self.modules.lowercase else text

    def _skipped(self, before: str) -> int:
        """Tokens of a prompt that do not count."""
        if self.modules.include_prompt or not before:
            return 0
        encoding: Encoding = self._inputs.tokenizer.encodings([str(self._prepared("", before))])[0][0]
        closed = bool(encoding.ids) and self._inputs.tokenizer.vocabulary.is_special(encoding.ids[-1])
        return len(encoding.ids) - closed

    def _vectors(
        self,
        feeds: dict[str, np.ndarray],
        compute: Callable[[np.ndarray, np.ndarray | None], np.ndarray],
        kept: int | None,
        normalize: bool | None,
    ) -> np.ndarray:
        """Vectors of padded texts: what `compute` makes of hidden states and their mask, or what the graph pools."""
        outputs = self._model(**feeds)
        name = next((name for name in HIDDEN if name in outputs), None)
        if name is None:
            if WHOLE not in outputs:
                expected = " or ".join((*HIDDEN, WHOLE))
                raise UsageError(
                    "E-MODEL-OUTPUT",
                    None,
                    "the model has no hidden states",
                    expected=expected,
                    found=", ".join(outputs),
                )
            return self._shortened(np.asarray(outputs[WHOLE], np.float32), kept, normalize)
        return compute(outputs[name], feeds.get("attention_mask"))

    def _finished(self, vectors: np.ndarray, normalize: bool | None) -> np.ndarray:
        """Pooled vectors after the model's further layers."""
        for stage in self.modules.stages:
            if stage is not normalized or normalize is not False:
                vectors = np.asarray(stage(vectors), np.float32)
        return vectors

    def _kept(self, dim: int | None) -> int | None:
        """Elements of a vector that are kept, None for all."""
        if dim is not None and dim < 1:
            raise UsageError("E-OPTION", None, "vectors have at least 1 dimension", found=dim)
        return self.modules.dim if dim is None else dim

    def _shortened(self, vectors: np.ndarray, kept: int | None, normalize: bool | None) -> np.ndarray:
        """The first elements of each vector."""
        vectors = vectors[..., :kept]
        return normalized(vectors) if normalize else vectors


def ranked(scores: np.ndarray, documents: Sequence[str], top: int | None) -> list[dict[str, Any]]:
    """Documents in the order of their scores."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [{"index": int(index), "score": float(scores[index]), "text": documents[index]} for index in order]


PIPELINE = FeatureExtraction
