"""The task that files next to a model state: vectors of texts, or ranking of documents by the answer yes or no."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...models.pipelines.ranking.ranking_prompt import answers, ranks
from ...models.pipelines.sentence_modules import embeds
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_CLASSIFICATION, TEXT_GENERATION, TEXT_RANKING
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from .attached_files import tokenizer_of
from .bind import Model

if TYPE_CHECKING:
    import numpy as np

CLASSIFIER = "classifier."


def stated_task(graph: Graph, model: Model) -> str | None:
    """The task that the files of a model state besides its class; None if they state none that it is able to."""
    able = {task.name for task in model.architecture.tasks}
    if FEATURE_EXTRACTION in able and embeds(graph):
        return FEATURE_EXTRACTION
    if TEXT_RANKING in able and model.task.name in (TEXT_GENERATION, TEXT_CLASSIFICATION) and ranks(graph):
        return TEXT_RANKING
    return None


def for_ranking(model: Model) -> Model:
    """A language model with a classifier of the rows that its head has for yes and no, in place of the head; models
    that have a classifier already are left as they are.

    Raises UsageError for a model without a head.
    """
    if f"{CLASSIFIER}weight" in model.weights:
        return model
    head = "head" if "head.weight" in model.weights else "embed"
    if f"{head}.weight" not in model.weights:
        path = model.source.files[0] if model.source.files else None
        raise UsageError("E-ARCH-TASK", path, "the model has no head whose answers could rank documents")
    model.require_head()
    ids = answers(model.source, tokenizer_of(model.source))
    weights = {name: tensor for name, tensor in model.weights.items() if not name.startswith("head.")}
    for part in ("weight", "bias"):
        rows = model.weights.get(f"{head}.{part}")
        if rows is not None:
            weights[f"{CLASSIFIER}{part}"] = StoredTensor.of(_rows(rows, ids))
    return dataclasses.replace(model, weights=weights)


def _rows(tensor: StoredTensor, ids: tuple[int, ...]) -> np.ndarray:
    """Rows of a weight as f32."""
    import numpy

    rows = [tensor[token : token + 1].dequantize() for token in ids]
    return numpy.concatenate([numpy.asarray(row.numpy(), numpy.float32) for row in rows])
