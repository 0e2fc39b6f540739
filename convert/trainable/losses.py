"""Losses of models by their tasks, as transformers computes them from the labels."""

from __future__ import annotations

from typing import Any

from ...models.pipelines.multimodal.dual_encoders.dual_encoder_graphs import ZERO_SHOT
from ...models.pipelines.multimodal.multimodal_tasks import IMAGE_TEXT
from ...models.schema.encoder_hyperparameters import FILL_MASK, QUESTION_ANSWERING, TOKEN_CLASSIFICATION
from ...models.schema.network_hyperparameters import IMAGE_CLASSIFICATION
from ...nn.functional.activation import logsigmoid
from ...nn.functional.loss import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import TEXT_CLASSIFICATION, TEXT_GENERATION
from ...tensors.core.tensor import Tensor
from ...tensors.namespace import PUBLIC

IGNORED = -100
"""Labels of tokens that do not count."""
PAIRWISE = "pairwise"
"""The problem of dual encoders whose pairs are judged one by one, as SigLIP's."""
REGRESSION, SINGLE, MULTIPLE = "regression", "single_label_classification", "multi_label_classification"
"""Values of config.json's ``problem_type``."""


def labeled_loss(task: str, outputs: dict[str, Tensor], labels: dict[str, Tensor], problem: str | None) -> Any:
    """The loss of a batch.

    Args:
        outputs: ``logits``, or ``start_logits`` and ``end_logits``.
        labels: ``labels``, or ``start_positions`` and ``end_positions``.
        problem: config.json's ``problem_type``; None to tell it from the labels.

    Raises UsageError for tasks without a loss.
    """
    if task == QUESTION_ANSWERING:
        ends = [(outputs["start_logits"], labels["start_positions"]), (outputs["end_logits"], labels["end_positions"])]
        parts = [_spans(logits, places) for logits, places in ends]
        return (parts[0] + parts[1]) / 2
    if task == ZERO_SHOT:
        return _pairs(outputs["logits_per_text"], labels["labels"], problem)
    wanted, logits = labels["labels"], outputs["logits"]
    if task in (TEXT_GENERATION, IMAGE_TEXT):
        return _tokens(logits[:, :-1], wanted[:, 1:])
    if task in (FILL_MASK, TOKEN_CLASSIFICATION):
        return _tokens(logits, wanted)
    if task in (TEXT_CLASSIFICATION, IMAGE_CLASSIFICATION):
        return _classes(logits, wanted, problem or problem_of(logits.shape[-1], wanted))
    raise UsageError("E-MODEL-LOSS", None, f"models for {task} have no loss", hint="Leave out the labels")


def problem_of(classes: int, labels: Tensor) -> str:
    """The problem type of a classifier, as transformers infers it from the labels."""
    if classes == 1:
        return REGRESSION
    return SINGLE if labels.dtype.kind in ("int", "uint") else MULTIPLE


def _pairs(logits: Tensor, matches: Tensor, problem: str | None) -> Any:
    """The contrastive loss of texts and the pictures that match them, from logits [texts, pictures]."""
    if problem != PAIRWISE:
        return (cross_entropy(logits, matches) + cross_entropy(logits.transpose(0, 1), matches.argsort())) / 2
    pictures = PUBLIC["arange"](logits.shape[1])
    signs = (matches.unsqueeze(1) == pictures).to(logits.dtype) * 2 - 1
    return -logsigmoid(signs * logits).sum(-1).mean()


def _classes(logits: Tensor, labels: Tensor, problem: str) -> Any:
    if problem == REGRESSION:
        return mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))
    if problem == MULTIPLE:
        return binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def _tokens(logits: Tensor, labels: Tensor) -> Any:
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=IGNORED)


def _spans(logits: Tensor, places: Tensor) -> Any:
    """Ignore positions past the end of the text."""
    length = logits.shape[-1]
    return cross_entropy(logits, places.clamp(0, length), ignore_index=length)
