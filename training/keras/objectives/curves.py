"""Metrics of curves: the area under precision and recall, or true and false positives, by thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ....tensors.operations.creation import zeros as zeros_of
from .losses import in_one_form
from .metric import Metric, share, squeezed

CURVES = ("ROC", "PR", "PRGAIN")
SUMMATIONS = ("interpolation", "minoring", "majoring")


class AUC(Metric):
    """The area under a curve of binary outputs, between 0 and 1, at thresholds.

    Args:
        num_thresholds: evenly from 0 to 1; thresholds: those between 0 and 1, instead.
        curve: "ROC": true over false positive rates; "PR": precision over recall; "PRGAIN": their gains (Flach and Kull
            2015).
        summation_method: heights of the rectangles: "interpolation", the middle ("PR": Davis and Goadrich 2006),
            "minoring", the lower, or "majoring", the higher end.
        multi_label: whether the area is the mean of those of each label, the last dim.
        num_labels: taken for Keras' sake.
        label_weights: how much each label counts, in the mean or for all outputs together.
        from_logits: whether outputs are logits.
    """

    def __init__(
        self, num_thresholds: int = 200, curve: str = "ROC", summation_method: str = "interpolation",
        name: str | None = None, dtype: Any = None, thresholds: Sequence[float] | None = None,
        multi_label: bool = False, num_labels: int | None = None, label_weights: Any = None, from_logits: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self.curve, self.summation_method = str(curve).upper(), str(summation_method).lower()
        if self.curve not in CURVES:
            raise UsageError("E-OPTION", None, f"curve is {curve!r}", expected=", ".join(CURVES))
        if self.summation_method not in SUMMATIONS:
            why = f"summation_method is {summation_method!r}"
            raise UsageError("E-OPTION", None, why, expected=", ".join(SUMMATIONS))
        if thresholds is None and num_thresholds < 2:
            raise UsageError("E-OPTION", None, f"num_thresholds is {num_thresholds}", expected="2 or more")
        self.between = None if thresholds is None else sorted(thresholds)
        self.num_thresholds = num_thresholds if self.between is None else len(self.between) + 2
        self.multi_label, self.num_labels, self.from_logits = multi_label, num_labels, from_logits
        self.label_weights = None if label_weights is None else as_tensor(label_weights).to("f32")

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        """True and false positives above each threshold [thresholds, labels], and targets of 1 and of 0 [labels]."""
        target, output = in_one_form(y_true, y_pred)
        if self.multi_label and output.ndim != 2:
            why = "AUC with multi_label takes outputs of 2 dims, items and labels"
            raise UsageError("E-NN-SHAPE", None, why, found=list(output.shape))
        output = output.sigmoid() if self.from_logits else output
        counts = target * 0 + 1
        if weight is not None:
            weight = squeezed(weight, target)
            counts = counts * weight.reshape(*weight.shape, *[1] * (target.ndim - weight.ndim))
        if self.label_weights is not None and not self.multi_label:
            counts = counts * self.label_weights
        labels = output.shape[-1] if self.multi_label else 1
        target, output, counts = (each.reshape(-1, labels) for each in (target, output, counts))
        right, wrong = counts * target, counts * (1 - target)
        above = [self._above(output, each) for each in (right, wrong)]
        return [*above, right.sum(0), wrong.sum(0)]

    def _above(self, output: Tensor, counts: Tensor) -> Tensor:
        """The counts of outputs above each threshold, [thresholds, labels]."""
        if self.between is None:
            last = self.num_thresholds - 1
            bins = ((output.detach().clamp(0, 1) * last).ceil() - 1).clamp(min=0).long()
        else:
            bins = (output.detach().unsqueeze(-1) > as_tensor(np.array(self.between, np.float32))).long().sum(-1)
        found = zeros_of(self.num_thresholds, counts.shape[1]).scatter_add(0, bins, counts.to("f32"))
        return found.flip(0).cumsum(0).flip(0)

    def ratio(self, sums: Sequence[Any]) -> Any:
        hits, alarms, positives, negatives = (as_tensor(each).to("f32") for each in sums)
        if (self.curve, self.summation_method) == ("PR", "interpolation"):
            areas = self._interpolated(hits, alarms, positives)
        else:
            areas = self._rectangles(*self._points(hits, alarms, positives, negatives))
        by_label = areas.sum(0)
        if self.label_weights is None or not self.multi_label:
            return by_label.mean()
        return share((by_label * self.label_weights).sum(), self.label_weights.sum())

    def _points(self, hits: Tensor, alarms: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Where the curve is at each threshold."""
        recall = _over(hits, positives + hits * 0)
        if self.curve == "ROC":
            return _over(alarms, negatives + hits * 0), recall
        if self.curve == "PR":
            return recall, _over(hits, hits + alarms)
        odds, some = _over(positives, negatives), (hits != 0).to("f32")
        gain = ((1 - odds * _over(positives - hits, hits)) * some).clamp(min=0)
        return gain, 1 - odds * _over(alarms, hits) * some

    def _rectangles(self, x: Tensor, y: Tensor) -> Tensor:
        one, other = y[:-1], y[1:]
        heights = {"interpolation": (one + other) / 2, "minoring": one.minimum(other), "majoring": one.maximum(other)}
        return (x[:-1] - x[1:]) * heights[self.summation_method]

    def _interpolated(self, hits: Tensor, alarms: Tensor, positives: Tensor) -> Tensor:
        """Areas below precisions whose parts are interpolated: slope * (dTP + intercept * log(P_a / P_b)) / positives
        (Davis and Goadrich 2006, section 4)."""
        chosen, gained = hits + alarms, hits[:-1] - hits[1:]
        slope = _over(gained, (chosen[:-1] - chosen[1:]).clamp(min=0))
        intercept = hits[1:] - slope * chosen[1:]
        both = ((chosen[:-1] > 0) & (chosen[1:] > 0)).to("f32")
        ratio = _over(chosen[:-1], chosen[1:]) * both + (1 - both)
        return _over(slope * (gained + intercept * ratio.log()), positives + gained * 0)


def _over(part: Tensor, whole: Tensor) -> Tensor:
    """A quotient; 0 where the divisor is 0."""
    some = (whole != 0).to(part.dtype)
    return part / (whole + (1 - some)) * some
