"""Metrics by Keras' names: means over items, or ratios of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ....runtime.base.errors import UsageError
from ....tensors.core.registry import FUNCTIONS
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ..core.settings import by_name
from . import losses
from .counted_metrics import (
    F1Score,
    FalseNegatives,
    FalsePositives,
    FBetaScore,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)  # fmt: skip
from .curves import AUC
from .losses import in_one_form
from .metric import Mean, Metric, Sum
from .overlaps import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU

__all__ = [
    "AUC", "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "BinaryIoU", "IoU", "MeanIoU", "OneHotIoU",
    "OneHotMeanIoU", "CategoricalAccuracy", "CategoricalCrossentropy",
    "CategoricalHinge", "CosineSimilarity", "F1Score", "FBetaScore", "FalseNegatives", "FalsePositives", "Hinge",
    "KLDivergence", "LogCoshError", "Mean", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError",
    "MeanSquaredLogarithmicError", "Metric", "Poisson", "Precision", "R2Score", "Recall", "RootMeanSquaredError",
    "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy", "SparseTopKCategoricalAccuracy", "SquaredHinge",
    "Sum", "TopKCategoricalAccuracy", "TrueNegatives", "TruePositives", "get",
]  # fmt: skip


class Accuracy(Metric):
    """The share of items whose target and output are equal."""

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        target, output = in_one_form(y_true, y_pred)
        return (target == output).float()


class BinaryAccuracy(Metric):
    """The share of outputs that are on the side of the threshold where their targets are."""

    def __init__(self, name: str | None = "binary_accuracy", dtype: Any = None, threshold: float = 0.5) -> None:
        super().__init__(name)
        self.threshold = threshold

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        target, output = in_one_form(y_true, y_pred)
        return (target == (output > self.threshold).to(target.dtype)).float()


class CategoricalAccuracy(Metric):
    """The share of items whose largest output is the class of their one-hot target."""

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        return (as_tensor(y_true).argmax(-1) == as_tensor(y_pred).argmax(-1)).float()


class SparseCategoricalAccuracy(Metric):
    """The share of items whose largest output is the class of their number."""

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        target, output = as_tensor(y_true), as_tensor(y_pred)
        target = target.squeeze(-1) if target.ndim == output.ndim and target.shape[-1] == 1 else target
        return (target.long() == output.argmax(-1)).float()


class TopKCategoricalAccuracy(Metric):
    """The share of items whose class is among the `k` largest outputs; targets are one-hot."""

    def __init__(self, k: int = 5, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name)
        self.k = k

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        return _in_top(as_tensor(y_true).argmax(-1), as_tensor(y_pred), self.k)


class SparseTopKCategoricalAccuracy(TopKCategoricalAccuracy):
    """The share of items whose class is among the `k` largest outputs; targets are numbers."""

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        target, output = as_tensor(y_true), as_tensor(y_pred)
        return _in_top(target.reshape(output.shape[:-1]).long(), output, self.k)


def _in_top(target: Tensor, output: Tensor, k: int) -> Tensor:
    _, found = FUNCTIONS["topk"](output, min(k, output.shape[-1]), -1)
    return (found == target.unsqueeze(-1)).any(-1).float()


class RootMeanSquaredError(Metric):
    """The root of the mean of squared differences."""

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        target, output = in_one_form(y_true, y_pred)
        return (output - target).square()

    def ratio(self, sums: Sequence[Any]) -> Any:
        return (sums[0] / sums[1]) ** 0.5


class _OfLoss(Metric):
    """The mean of a loss over items."""

    loss: ClassVar[Any] = None

    def __init_subclass__(cls, loss: Any = None, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.loss = loss or cls.loss

    def __init__(self, name: str | None = None, dtype: Any = None, **options: Any) -> None:
        super().__init__(name)
        self._loss = type(self).loss(**options)

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        found: Tensor = self._loss.call(y_true, y_pred)
        return found


class MeanSquaredError(_OfLoss, loss=losses.MeanSquaredError):
    """The mean of squared differences."""


class MeanAbsoluteError(_OfLoss, loss=losses.MeanAbsoluteError):
    """The mean of absolute differences."""


class MeanAbsolutePercentageError(_OfLoss, loss=losses.MeanAbsolutePercentageError):
    """The mean of absolute differences as percentages of the targets."""


class MeanSquaredLogarithmicError(_OfLoss, loss=losses.MeanSquaredLogarithmicError):
    """The mean of squared differences of ``log(1 + x)``."""


class BinaryCrossentropy(_OfLoss, loss=losses.BinaryCrossentropy):
    """The mean of `losses.BinaryCrossentropy`."""


class CategoricalCrossentropy(_OfLoss, loss=losses.CategoricalCrossentropy):
    """The mean of `losses.CategoricalCrossentropy`."""


class SparseCategoricalCrossentropy(_OfLoss, loss=losses.SparseCategoricalCrossentropy):
    """The mean of `losses.SparseCategoricalCrossentropy`."""


class KLDivergence(_OfLoss, loss=losses.KLDivergence):
    """The mean of `losses.KLDivergence`."""


class Poisson(_OfLoss, loss=losses.Poisson):
    """The mean of `losses.Poisson`."""


class Hinge(_OfLoss, loss=losses.Hinge):
    """The mean of `losses.Hinge`."""


class SquaredHinge(_OfLoss, loss=losses.SquaredHinge):
    """The mean of `losses.SquaredHinge`."""


class CategoricalHinge(_OfLoss, loss=losses.CategoricalHinge):
    """The mean of `losses.CategoricalHinge`."""


class LogCoshError(_OfLoss, loss=losses.LogCosh):
    """The mean of ``log(cosh(difference))``."""

    def __init__(self, name: str | None = "logcosh", dtype: Any = None) -> None:
        super().__init__(name)


class CosineSimilarity(_OfLoss, loss=losses.CosineSimilarity):
    """The mean cosine of the angle between targets and outputs."""

    def __init__(self, name: str | None = "cosine_similarity", dtype: Any = None, axis: int = -1) -> None:
        super().__init__(name, axis=axis)

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        return -super().values(y_true, y_pred)


class R2Score(Metric):
    """The share of the targets' variance that outputs [N, columns] account for, by the mean over columns.

    Args:
        class_aggregation: "uniform_average", or "variance_weighted_average" by the columns' variances.
        num_regressors: inputs of the model, for the adjusted score; 0 for the plain one.
    """

    def __init__(
        self, class_aggregation: str | None = "uniform_average", num_regressors: int = 0,
        name: str | None = "r2_score", dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        known = ("uniform_average", "variance_weighted_average")
        if class_aggregation not in known:
            raise UsageError(
                "E-OPTION", None, f"class_aggregation is {class_aggregation!r}", expected=" or ".join(known)
            )
        self.class_aggregation, self.num_regressors = class_aggregation, num_regressors

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        target, output = in_one_form(y_true, y_pred)
        if target.ndim == 1:
            target, output = target.unsqueeze(-1), output.unsqueeze(-1)
        rows = target.new_ones(len(target), 1) if weight is None else weight.reshape(-1, 1)
        columns = [(each * rows).sum(0) for each in (target, target.square(), (target - output).square())]
        count = target.new_ones(()) * target.numel()  # elements, as Keras counts them
        return [rows.sum(), count, *(each[number] for each in columns for number in range(target.shape[-1]))]

    def ratio(self, sums: Sequence[Any]) -> Any:
        weights, count, *rest = sums
        width = len(rest) // 3
        columns = zip(rest[:width], rest[width : 2 * width], rest[2 * width :], strict=True)
        parts = [(squares - total * total / weights, residual) for total, squares, residual in columns]
        scores = [1 - residual / spread if spread else 0.0 for spread, residual in parts]
        if self.class_aggregation == "uniform_average":
            score = sum(scores) / width
        else:
            score = sum(s * spread for s, (spread, _) in zip(scores, parts, strict=True)) / sum(p[0] for p in parts)
        if self.num_regressors:
            score = 1 - (1 - score) * (count - 1) / (count - self.num_regressors - 1)
        return score


class _Wrapped(Metric):
    """A metric of a user's function of targets and outputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(getattr(function, "__name__", "metric"))
        self.function = function

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        found: Tensor = self.function(y_true, y_pred)
        return found


METRICS: dict[str, Any] = {
    name: each
    for name, each in list(globals().items())
    if isinstance(each, type) and issubclass(each, Metric) and name in __all__ and each not in (Metric, Mean, Sum)
}


def listed(given: Any) -> list[Any]:
    """Metrics of an output, of which one stands for a list of one."""
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def get(identifier: Any, y_true: Any, y_pred: Any, loss: Any = None) -> Metric:
    """A metric of its name, an object, or a function; "accuracy" is the one that fits targets and outputs."""
    if isinstance(identifier, str) and identifier.lower() in ("accuracy", "acc"):
        if y_pred.shape[-1] == 1:
            return BinaryAccuracy(identifier)
        sparse = y_true.ndim < y_pred.ndim or y_true.shape[-1] == 1
        return SparseCategoricalAccuracy(identifier) if sparse else CategoricalAccuracy(identifier)
    name = losses.LOSS_ALIASES.get(identifier.lower(), identifier) if isinstance(identifier, str) else identifier
    found = by_name(METRICS, name, "metric")
    if not isinstance(found, Metric):
        if not callable(found):
            raise UsageError("E-TRAIN-NAME", None, f"{type(found).__name__} is not a metric")
        found = _Wrapped(found)
    if isinstance(identifier, str):
        found.name = identifier
    return found


def __dir__() -> list[str]:
    return list(__all__)
