"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..nn.log_softmax import log_softmax
from ..rules.precision import widened

REDUCTIONS = ("none", "sum", "mean")
LABELS = np.array([[1, 0, 2, 4], [3, 4, 0, 1]])
CLASSES = np.array([0.5, 2, 1, 0.25, 3], np.float32)
EXAMPLES = [
    case("f32[2,5,4]", LABELS),
    case("f32[2,5,4]", LABELS, CLASSES),
    case("f32[2,5,4]", LABELS, CLASSES, reduction="sum"),
    case("f32[2,5,4]", LABELS, CLASSES, ignore_index=4, reduction="none"),
    case("f32[2,5,4]", LABELS, ignore_index=1),
    case("f32[2,5]", np.array([4, 0], np.int32), reduction="none"),
    case("f32[0,5]", np.zeros(0, np.int64), reduction="none"),
]


def lost(node: Inference) -> None:
    """A scalar, or one loss for each label; the second output has the shape of the scores."""
    if node.attributes["reduction"] not in REDUCTIONS:
        node.fail(f"reduction {node.attributes['reduction']!r} is none of {', '.join(REDUCTIONS)}")
    scores = node.shape(0)
    if scores is not None and len(scores) < 2:
        node.fail(f"its scores have {counted(len(scores), 'dim')}, they need a batch and classes")
    each = node.shape(1) or (None if scores is None else (scores[0], *scores[2:]))
    node.set(0, node.dtype(0), each if node.attributes["reduction"] == "none" else ())
    node.set(1, node.dtype(0), scores)


def _loss(
    name: str,
    logs: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None,
    ignore_index: int | None,
    reduction: str,
) -> np.ndarray:
    """From log-probabilities (N, C, ...) and labels (N, ...) to the loss of each label, their sum, or their mean by
    weight."""
    if logs.ndim != labels.ndim + 1 or labels.shape != (*logs.shape[:1], *logs.shape[2:]):
        why = f"{name}: labels do not fit scores"
        raise UsageError("E-OP-SHAPE", None, why, expected=logs.shape, found=labels.shape, hint="Compare them")
    used = np.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    chosen = np.where(used, labels, 0).astype(np.intp)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= logs.shape[1]):
        raise UsageError(
            "E-OP-VALUE",
            None,
            f"{name}: a label is not a class",
            expected=f"0 to {logs.shape[1] - 1}",
            found=int(chosen.max()),
            hint="Check the labels",
        )
    share = used.astype(logs.dtype) if weights is None else np.where(used, weights[chosen], 0).astype(logs.dtype)
    each = (
        -np.take_along_axis(logs, chosen[:, None], axis=1)[:, 0]
        if logs.shape[1]
        else np.zeros(labels.shape, logs.dtype)
    )
    each = np.where(used, each * share, 0).astype(logs.dtype)
    if reduction == "none":
        return each
    return (
        np.sum(each, dtype=logs.dtype)
        if reduction == "sum"
        else np.sum(each, dtype=logs.dtype) / np.sum(share, dtype=logs.dtype)
    )


@op(
    "NegativeLogLikelihoodLoss",
    since=22,
    types="T=float index T",
    traits=(Trait.SUMS, Trait.IMPRECISE_IN_F16),
    infer=lost,
    examples=EXAMPLES,
)
@quiet
@widened
def negative_log_likelihood_loss(
    x: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> np.ndarray:
    """Loss of log-probabilities `x` of shape (N, C, ...) for labels of shape (N, ...)."""
    return _loss("NegativeLogLikelihoodLoss", x, labels, weights, ignore_index, reduction)


@op(
    "SoftmaxCrossEntropyLoss",
    since=13,
    types="T=float index T -> 2",
    traits=(Trait.SUMS, Trait.IMPRECISE_IN_F16),
    infer=lost,
    examples=[*EXAMPLES, case("f32[2,5,4]", LABELS, CLASSES, outputs=2)],
)
@quiet
@widened
def softmax_cross_entropy_loss(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[np.ndarray, np.ndarray]:
    """Loss of scores of shape (N, C, ...) for labels of shape (N, ...), and the logarithm of their softmax over the
    classes."""
    assert log_softmax.compute is not None
    logs = log_softmax.compute(scores, axis=1)
    return _loss("SoftmaxCrossEntropyLoss", logs, labels, weights, ignore_index, reduction), logs
