"""Metrics of counts: true and false positives and negatives by Keras' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from .losses import in_one_form
from .metric import Metric, share, squeezed

AVERAGES = (None, "micro", "macro", "weighted")
EPSILON = 1e-7


class _Counted(Metric):
    """Counts of outputs above a threshold."""

    def __init__(self, thresholds: float | None = None, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name)
        self.threshold = 0.5 if thresholds is None else thresholds

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        target, output = in_one_form(y_true, y_pred)
        chosen = (output > self.threshold).to(target.dtype)
        return [_total(each, weight) for each in (chosen * target, chosen, target)]


class Precision(_Counted):
    """The share of outputs above the threshold whose targets are 1."""

    def ratio(self, sums: Sequence[Any]) -> Any:
        return share(sums[0], sums[1])


class Recall(_Counted):
    """The share of targets of 1 whose outputs are above the threshold."""

    def ratio(self, sums: Sequence[Any]) -> Any:
        return share(sums[0], sums[2])


class _Count(_Counted):
    """One of the counts of outputs by their side of the threshold and their targets."""

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        target, output = in_one_form(y_true, y_pred)
        target, chosen = (each.to(output.dtype) for each in (target != 0, output > self.threshold))
        return [_total(self.counted(target, chosen), weight)]

    def counted(self, target: Tensor, chosen: Tensor) -> Tensor:
        """1 for elements that count."""
        raise NotImplementedError

    def ratio(self, sums: Sequence[Any]) -> Any:
        return sums[0]


class TruePositives(_Count):
    """Number of outputs above the threshold with targets of 1."""

    def counted(self, target: Tensor, chosen: Tensor) -> Tensor:
        return chosen * target


class TrueNegatives(_Count):
    """Number of outputs up to the threshold with targets of 0."""

    def counted(self, target: Tensor, chosen: Tensor) -> Tensor:
        return (1 - chosen) * (1 - target)


class FalsePositives(_Count):
    """Number of outputs above the threshold with targets of 0."""

    def counted(self, target: Tensor, chosen: Tensor) -> Tensor:
        return chosen * (1 - target)


class FalseNegatives(_Count):
    """Number of outputs up to the threshold with targets of 1."""

    def counted(self, target: Tensor, chosen: Tensor) -> Tensor:
        return (1 - chosen) * target


class FBetaScore(Metric):
    """The harmonic mean of precision and recall, where recall counts `beta` times as much, of outputs [N, classes].

    Args:
        average: None for a score of each class, "macro" for their mean, "weighted" for their mean by the number of
            targets, "micro" for the score of all classes together.
        threshold: outputs above it are chosen; None for the largest one of each item.
    """

    def __init__(
        self, average: str | None = None, beta: float = 1.0, threshold: float | None = None,
        name: str | None = "fbeta_score", dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        if average not in AVERAGES:
            raise UsageError("E-OPTION", None, f"average is {average!r}", expected="micro, macro, weighted or None")
        if beta <= 0:
            raise UsageError("E-OPTION", None, f"beta is {beta!r}", expected="more than 0")
        if threshold is not None and not 0 < threshold <= 1:
            raise UsageError("E-OPTION", None, f"threshold is {threshold!r}", expected="more than 0, and at most 1")
        self.average, self.beta, self.threshold = average, beta, threshold

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        if len(y_pred.shape) != 2 or len(y_true.shape) != 2:
            why = f"{type(self).__name__} takes targets and outputs of 2 dims, items and classes"
            raise UsageError("E-NN-SHAPE", None, why, found=[list(y_true.shape), list(y_pred.shape)])
        target, output = in_one_form(y_true, y_pred)
        if self.threshold is None:
            chosen = (output >= output.amax(-1, True)).to(output.dtype) * (output.abs() > 1e-9).to(output.dtype)
        else:
            chosen = (output > self.threshold).to(output.dtype)
        counts = (chosen * target, chosen * (1 - target), (1 - chosen) * target, target)
        if self.average == "micro":
            return [_total(each, weight) for each in counts]
        rows = 1 if weight is None else squeezed(weight, target[:, 0]).unsqueeze(1)
        by_class = [(each * rows).sum(0) for each in counts]
        return [each[number] for each in by_class for number in range(target.shape[-1])]

    def parts(self, y_true: Any, y_pred: Any) -> Sequence[Tensor]:
        if self.average is None and y_pred.shape[-1] > 1:
            why = f"{type(self).__name__} has a value for each class, where fit() and evaluate() report one"
            raise UsageError("E-TRAIN-METRIC", None, why, hint='Pass average="macro", "micro" or "weighted"')
        return self.sums(y_true, y_pred, None)

    def ratio(self, sums: Sequence[Any]) -> Any:
        scores = self._scores(sums)
        if self.average != "weighted":
            return sum(scores) / len(scores)
        weights = sums[-len(scores) :]
        total = sum(weights) + EPSILON
        return sum(score * weight / total for score, weight in zip(scores, weights, strict=True))

    def result(self) -> Any:
        """The score of the batches so far; with `average` None an array f32 [classes]."""
        return np.array(self._scores(self._sums), np.float32) if self.average is None else super().result()

    def _scores(self, sums: Sequence[Any]) -> list[Any]:
        count = len(sums) // 4
        square = self.beta**2
        found = []
        for right, wrong, missed in zip(*(sums[first * count :][:count] for first in range(3)), strict=True):
            precision, recall = right / (right + wrong + EPSILON), right / (right + missed + EPSILON)
            found.append((1 + square) * precision * recall / (square * precision + recall + EPSILON))
        return found


class F1Score(FBetaScore):
    """The harmonic mean of precision and recall of each class, or an average over classes."""

    def __init__(
        self, average: str | None = None, threshold: float | None = None, name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(average, 1.0, threshold, name)


def _total(values: Tensor, weight: Tensor | None) -> Tensor:
    """The sum of values, weighted by items or by elements."""
    if weight is None:
        return values.sum()
    weight = squeezed(weight, values)
    return (values * weight.reshape(*weight.shape, *[1] * (values.ndim - weight.ndim))).sum()
