"""Base of models that take texts: what they can do follows from their task."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.plugin.discovery import below
from ..tokenizer.core.encoding import Text

if TYPE_CHECKING:
    import numpy as np

    from ..tokenizer import Tokenizer

PIPELINES = below(__package__, "PIPELINE")
"""The class that uses a model for a task, by the task's name with underscores."""
VERBS = ("embed", "predict", "rerank", "generate", "transcribe", "speak", "draw")
"""What a model may be able to do, by the names of methods."""
TextInput = Text | Sequence[int]
"""A text, a pair of texts, or token ids."""
Progress = Callable[[int, int], None]
"""Called with how many texts are done, and of how many."""


class TextModel:
    """A model of one graph that takes token ids.

    Attributes:
        graph: what is computed.
        options: what is known of the model.
    """

    graph: Graph
    options: RunOptions = RunOptions()

    @property
    def task(self) -> str:
        """Hugging Face's name of the task, empty if unknown."""
        return self.options.task

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs of the task by name."""
        return {MODEL: self.graph}

    @property
    def input_names(self) -> frozenset[str]:
        """Names of the graph's inputs."""
        return frozenset(value.name for value in self.graph.inputs)

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
    def verbs(self) -> tuple[str, ...]:
        """What the model can do, of `VERBS`."""
        return tuple(verb for verb in VERBS if hasattr(self._pipeline, verb))

    def __call__(self, *arguments: Any, **arrays: Any) -> Mapping[str, np.ndarray]:
        """The outputs by name."""
        raise NotImplementedError

    @functools.cached_property
    def _pipeline(self) -> Any:
        name = self.task.replace("-", "_")
        return PIPELINES.load(name)(self) if name in PIPELINES else None

    def __getattr__(self, name: str) -> Any:
        """UsageError for a use that a model of this kind does not have."""
        if name in VERBS:
            raise cannot(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _verb(self, verb: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(self._pipeline, verb, None)
        if found is None:
            raise cannot(self, verb)
        return found

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
            progress: told how many texts are done.

        Texts that are too long are cut, with a `TruncationWarning`. Raises UsageError if the model makes no vectors.
        """
        found: np.ndarray = self._verb("embed")(
            texts,
            batch,
            prompt_name=prompt_name,
            prompt=prompt,
            pooling=pooling,
            normalize=normalize,
            progress=progress,
        )
        return found

    @memory_limited
    def predict(self, inputs: Any, **options: Any) -> Any:
        """What the model finds in a text, as a list of dictionaries, the most probable first; a list of such lists for
        a list of texts. Each task's pipeline describes its options: ``top``, ``batch``, ``context`` ...

        Raises UsageError if the model predicts nothing, and for options that its task does not have.
        """
        method = self._verb("predict")
        known = inspect.signature(method).parameters
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            hint = f"Options: {', '.join(list(known)[1:])}"
            raise UsageError("E-OPTION", None, f"{self.task} has no option {unknown}", hint=hint)
        return method(inputs, **options)

    @memory_limited
    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top: int | None = None,
        batch: int = 32,
        progress: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """Documents by how well they answer a query, the best first: ``index``, ``score`` and ``text`` of each.

        Args:
            top: how many, None for all.
            batch: documents of one run.
            progress: told how many documents are done.

        Raises UsageError if the model compares no texts.
        """
        found: list[dict[str, Any]] = self._verb("rerank")(query, documents, top=top, batch=batch, progress=progress)
        return found


class UnsupportedUse(UsageError, AttributeError):
    """A model does not have a method that models of other tasks have."""


def cannot(model: TextModel, verb: str) -> UnsupportedUse:
    """The error for a use that a model's task is not for."""
    task = model.task or "unknown"
    hint = f"It has {' and '.join(model.verbs)}" if model.verbs else ""
    if verb == "embed" and task != FEATURE_EXTRACTION:
        hint = f"{hint}; load it with task={FEATURE_EXTRACTION!r} for vectors".removeprefix("; ").capitalize()
    return UnsupportedUse("E-MODEL-VERB", None, f"the model cannot {verb}: its task is {task}", hint=hint or None)


def embedding_rows(graph: Graph) -> int | None:
    """Rows of the weight that token ids select from, None if it is not known."""
    ids = graph.values.get("input_ids")
    weight = next(
        (
            node.inputs[0]
            for node in graph.nodes
            if node.op.name == "Gather" and len(node.inputs) > 1 and node.inputs[1] is ids
        ),
        None,
    )
    held = graph.weights.get(weight.name) if weight is not None else None
    return held.shape[0] if held is not None and held.shape else None
