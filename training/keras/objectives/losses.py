"""Losses by Keras' names: of targets and outputs, a value for each item, and their mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ....nn import functional
from ....runtime.base.errors import UsageError
from ....tensors import namespace as namespace  # tensors get their operations
from ....tensors.core.promotion import category
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ..core.masking import mask_of
from ..core.settings import Configured, by_name, snake_case

__all__ = [
    "BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy", "CategoricalFocalCrossentropy",
    "CategoricalHinge", "CosineSimilarity", "Dice", "Hinge", "Huber", "KLDivergence", "LogCosh", "Loss",
    "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError", "Poisson",
    "SparseCategoricalCrossentropy", "SquaredHinge", "Tversky", "binary_crossentropy", "binary_focal_crossentropy",
    "categorical_crossentropy", "categorical_focal_crossentropy", "categorical_hinge", "cosine_similarity", "dice",
    "get", "hinge", "huber", "kl_divergence", "log_cosh", "mean_absolute_error", "mean_absolute_percentage_error",
    "mean_squared_error", "mean_squared_logarithmic_error", "poisson", "sparse_categorical_crossentropy",
    "squared_hinge", "tversky",
]  # fmt: skip
EPSILON = 1e-7
REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none", None)


def in_one_form(y_true: Any, y_pred: Any) -> tuple[Tensor, Tensor]:
    """Targets and outputs of equal rank, without a last dim of length 1 too many; targets in the outputs' dtype."""
    target, output = as_tensor(y_true), as_tensor(y_pred)
    if output.ndim == target.ndim + 1 and output.shape[-1] == 1:
        target = target.unsqueeze(-1)
    elif target.ndim == output.ndim + 1 and target.shape[-1] == 1:
        target = target.squeeze(-1)
    return target.to(output.dtype), output


def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of squared differences over the last dim."""
    target, output = in_one_form(y_true, y_pred)
    return (output - target).square().mean(-1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of absolute differences over the last dim."""
    target, output = in_one_form(y_true, y_pred)
    return (output - target).abs().mean(-1)


def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of absolute differences as percentages of the targets."""
    target, output = in_one_form(y_true, y_pred)
    return 100 * ((target - output) / target.abs().clamp(min=EPSILON)).abs().mean(-1)


def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of squared differences of ``log(1 + x)``."""
    target, output = in_one_form(y_true, y_pred)
    first, second = ((each.clamp(min=EPSILON) + 1).log() for each in (output, target))
    return (first - second).square().mean(-1)


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """Half the squared difference up to `delta`, linear from there on."""
    target, output = in_one_form(y_true, y_pred)
    return functional.huber_loss(output, target, reduction="none", delta=delta).mean(-1)


def log_cosh(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of ``log(cosh(difference))``."""
    target, output = in_one_form(y_true, y_pred)
    error = output - target
    return (error + functional.softplus(error * -2.0) - math.log(2.0)).mean(-1)


def hinge(y_true: Any, y_pred: Any) -> Tensor:
    """``max(1 - target * output, 0)`` for targets -1 and 1, or 0 and 1."""
    target, output = in_one_form(y_true, y_pred)
    return (1 - _signs(target) * output).clamp(min=0).mean(-1)


def squared_hinge(y_true: Any, y_pred: Any) -> Tensor:
    """The square of the terms of `hinge`."""
    target, output = in_one_form(y_true, y_pred)
    return (1 - _signs(target) * output).clamp(min=0).square().mean(-1)


def categorical_hinge(y_true: Any, y_pred: Any) -> Tensor:
    """By how much the best wrong class comes within 1 of the right one."""
    target, output = in_one_form(y_true, y_pred)
    right, wrong = (target * output).sum(-1), ((1 - target) * output).amax(-1)
    return (wrong - right + 1).clamp(min=0)


def kl_divergence(y_true: Any, y_pred: Any) -> Tensor:
    """The divergence of outputs from targets."""
    target, output = (each.clamp(EPSILON, 1) for each in in_one_form(y_true, y_pred))
    return (target * (target / output).log()).sum(-1)


def poisson(y_true: Any, y_pred: Any) -> Tensor:
    """``output - target * log(output)``."""
    target, output = in_one_form(y_true, y_pred)
    return (output - target * (output + EPSILON).log()).mean(-1)


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Tensor:
    """The negative cosine of the angle."""
    target, output = in_one_form(y_true, y_pred)
    one, other = (each / each.square().sum(axis, True).clamp(min=1e-12).sqrt() for each in (target, output))
    return -(one * other).sum(axis)


def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """The mean cross-entropy of outputs that each are the probability, or the logit, of a 1."""
    target, output = in_one_form(y_true, y_pred)
    target = target * (1 - label_smoothing) + 0.5 * label_smoothing if label_smoothing else target
    if from_logits:
        each = functional.binary_cross_entropy_with_logits(output, target, reduction="none")
    else:
        chance = output.clamp(EPSILON, 1 - EPSILON)
        each = -(target * chance.log() + (1 - target) * (1 - chance).log())
    return each.mean(axis)


def binary_focal_crossentropy(
    y_true: Any, y_pred: Any, apply_class_balancing: bool = False, alpha: float = 0.25, gamma: float = 2.0,
    from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1,
) -> Tensor:  # fmt: skip
    """The binary cross-entropy times a power of the distance from the right answer."""
    target, output = in_one_form(y_true, y_pred)
    target = target * (1 - label_smoothing) + 0.5 * label_smoothing if label_smoothing else target
    chance = output.sigmoid() if from_logits else output
    kept = chance.clamp(EPSILON, 1 - EPSILON)
    entropy = -(target * kept.log() + (1 - target) * (1 - kept).log())
    found = (1 - target * chance - (1 - target) * (1 - chance)) ** gamma * entropy
    if apply_class_balancing:
        found = found * (target * alpha + (1 - target) * (1 - alpha))
    return found.mean(axis)


def categorical_focal_crossentropy(
    y_true: Any, y_pred: Any, alpha: Any = 0.25, gamma: float = 2.0, from_logits: bool = False,
    label_smoothing: float = 0.0, axis: int = -1,
) -> Tensor:  # fmt: skip
    """The cross-entropy of classes, each times a power of the distance from 1; `alpha` may be a list of weights."""
    target, output = in_one_form(y_true, y_pred)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / target.shape[-1]
    chance = output.softmax(axis) if from_logits else output / output.sum(axis, True)
    chance = chance.clamp(EPSILON, 1 - EPSILON)
    weight = as_tensor(alpha).to(chance.dtype) if isinstance(alpha, list | tuple) else alpha
    return ((1 - chance) ** gamma * weight * (-target * chance.log())).sum(axis)


def dice(y_true: Any, y_pred: Any, axis: Any = None) -> Tensor:
    """1 minus twice the overlap of targets and outputs over their sum."""
    target, output = in_one_form(y_true, y_pred)
    both, one, other = (_along(each, axis) for each in (target * output, target, output))
    return 1 - 2 * both / (one + other + EPSILON)


def tversky(y_true: Any, y_pred: Any, alpha: float = 0.5, beta: float = 0.5, axis: Any = None) -> Tensor:
    """1 minus the overlap over itself, `alpha` times what outputs miss, and `beta` times what they add."""
    target, output = in_one_form(y_true, y_pred)
    both, missed, added = (_along(x, axis) for x in (target * output, (1 - output) * target, output * (1 - target)))
    return 1 - both / (both + missed * alpha + added * beta + EPSILON)


def _along(x: Tensor, axis: Any) -> Tensor:
    """The sum along axes, None for all."""
    found: Tensor = x.sum() if axis is None else x.sum(axis)
    return found


def _log_probabilities(output: Tensor, from_logits: bool, axis: int) -> Tensor:
    if from_logits:
        return functional.log_softmax(output, axis)
    return (output / output.sum(axis, True)).clamp(EPSILON, 1 - EPSILON).log()


def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1
) -> Tensor:
    """The cross-entropy of classes whose targets are one-hot."""
    target, output = in_one_form(y_true, y_pred)
    count = output.shape[-1]
    target = target * (1 - label_smoothing) + label_smoothing / count if label_smoothing else target
    return -(target * _log_probabilities(output, from_logits, axis)).sum(axis)


def sparse_categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, ignore_class: int | None = None, axis: int = -1
) -> Tensor:
    """The cross-entropy against integer class indices."""
    target, output = as_tensor(y_true), as_tensor(y_pred)
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = target.squeeze(-1)
    target = target if category(target.dtype) < 2 and target.dtype.kind != "bool" else target.long()
    counts = target if ignore_class is None else target.masked_fill(target == ignore_class, 0)
    logs = _log_probabilities(output, from_logits, axis)
    each = -logs.gather(axis, counts.long().unsqueeze(axis)).squeeze(axis)
    return each if ignore_class is None else each.masked_fill(target == ignore_class, 0.0)


def _signs(target: Tensor) -> Tensor:
    """Targets 0 and 1 as -1 and 1; others as they are."""
    return target + (target == 0).to(target.dtype) * -1


class Loss(Configured):
    """Base of losses: a subclass defines ``call(y_true, y_pred)``, a value for each item.

    Args:
        reduction: "sum_over_batch_size" for the mean, "sum", or "none".
    """

    file_module: ClassVar[str] = "keras.losses"

    def __init__(
        self, name: str | None = None, reduction: str | None = "sum_over_batch_size", dtype: Any = None
    ) -> None:
        if reduction not in REDUCTIONS:
            raise UsageError(
                "E-OPTION", None, f"reduction is {reduction!r}", expected="sum_over_batch_size, sum or none"
            )
        self.name = name or snake_case(type(self).__name__)
        self.reduction = reduction

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        """A value for each item."""
        raise NotImplementedError(f"{type(self).__name__} does not define call()")

    def counted_items(self, y_true: Any, items: Tensor) -> Tensor | None:
        """1 for each item whose value counts in a mean, and 0 for others, in the items' shape; None if all count."""
        return None

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """The values of items, weighted and reduced; those whose mask is false do not count."""
        each = self.call(y_true, y_pred)
        counts = self.counted_items(y_true, each)
        mask = mask_of(y_pred)
        if mask is not None:
            shown = mask.to(each.dtype).reshape(*mask.shape, *[1] * (each.ndim - mask.ndim)).expand(each.shape)
            each, counts = each * shown, shown if counts is None else counts * shown
        if sample_weight is not None:
            weights = as_tensor(sample_weight).to(each.dtype)
            if weights.ndim == each.ndim + 1 and weights.shape[-1] == 1:
                weights = weights.squeeze(-1)
            weights = weights.reshape(*weights.shape, *[1] * (each.ndim - weights.ndim))
            each = each * weights
            if self.reduction == "mean_with_sample_weight":
                weights = weights if counts is None else weights * counts
                return each.sum() / weights.sum()
        if self.reduction in ("none", None):
            return each
        if self.reduction == "sum":
            return each.sum()
        return each.mean() if counts is None else each.sum() / counts.sum().clamp(min=1)


class FunctionLoss(Loss):
    """A loss of a function of targets and outputs, such as Keras' are."""

    function: ClassVar[Callable[..., Tensor]]

    def __init_subclass__(cls, function: Callable[..., Tensor] | None = None, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if function is not None:
            cls.function = staticmethod(function)

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name, reduction)
        self.options: dict[str, Any] = {}

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return self.function(y_true, y_pred, **self.options)


class MeanSquaredError(FunctionLoss, function=mean_squared_error):
    """The mean of squared differences."""


class MeanAbsoluteError(FunctionLoss, function=mean_absolute_error):
    """The mean of absolute differences."""


class MeanAbsolutePercentageError(FunctionLoss, function=mean_absolute_percentage_error):
    """The mean of absolute differences as percentages of the targets."""


class MeanSquaredLogarithmicError(FunctionLoss, function=mean_squared_logarithmic_error):
    """The mean of squared differences of ``log(1 + x)``."""


class LogCosh(FunctionLoss, function=log_cosh):
    """The mean of ``log(cosh(difference))``."""


class Hinge(FunctionLoss, function=hinge):
    """``max(1 - target * output, 0)``."""


class SquaredHinge(FunctionLoss, function=squared_hinge):
    """The square of the terms of `Hinge`."""


class CategoricalHinge(FunctionLoss, function=categorical_hinge):
    """By how much the best wrong class comes within 1 of the right one."""


class KLDivergence(FunctionLoss, function=kl_divergence):
    """The divergence of outputs from targets."""


class Poisson(FunctionLoss, function=poisson):
    """``output - target * log(output)``."""


class Huber(FunctionLoss, function=huber):
    """Half the squared difference up to `delta`, linear from there on."""

    def __init__(
        self, delta: float = 1.0, reduction: str | None = "sum_over_batch_size", name: str | None = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name or "huber_loss")
        self.options = {"delta": delta}


class CosineSimilarity(FunctionLoss, function=cosine_similarity):
    """The negative cosine of the angle."""

    def __init__(
        self, axis: int = -1, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(reduction, name)
        self.options = {"axis": axis}


class Dice(FunctionLoss, function=dice):
    """1 minus twice the overlap of targets and outputs over their sum."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None, axis: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.options = {"axis": axis}


class Tversky(FunctionLoss, function=tversky):
    """1 minus the overlap over itself and weighted wrong and missed outputs (Salehi et al. 2017)."""

    def __init__(
        self, alpha: float = 0.5, beta: float = 0.5, reduction: str | None = "sum_over_batch_size",
        name: str | None = None, axis: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.options = {"alpha": alpha, "beta": beta, "axis": axis}


class _OfClasses(FunctionLoss):
    """A loss of probabilities, or of logits.

    Attributes:
        from_logits: whether outputs are logits.
    """

    from_logits = False


class _Smoothed(_OfClasses):
    """Base of losses whose targets are smoothed."""

    def __init__(
        self, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1,
        reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.options = {"from_logits": from_logits, "label_smoothing": label_smoothing, "axis": axis}


class BinaryCrossentropy(_Smoothed, function=binary_crossentropy):
    """The mean cross-entropy of outputs that each are the probability, or the logit, of a 1."""


class CategoricalCrossentropy(_Smoothed, function=categorical_crossentropy):
    """The cross-entropy of classes whose targets are one-hot."""


class BinaryFocalCrossentropy(_OfClasses, function=binary_focal_crossentropy):
    """The binary cross-entropy, in which outputs that are right count less (Lin et al. 2018).

    Args:
        apply_class_balancing: weights of `alpha` for targets of 1, and of 1 - `alpha` for 0.
        gamma: exponent of the distance from the right answer.
    """

    def __init__(
        self, apply_class_balancing: bool = False, alpha: float = 0.25, gamma: float = 2.0, from_logits: bool = False,
        label_smoothing: float = 0.0, axis: int = -1, reduction: str | None = "sum_over_batch_size",
        name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.options = {
            "apply_class_balancing": apply_class_balancing, "alpha": alpha, "gamma": gamma, "from_logits": from_logits,
            "label_smoothing": label_smoothing, "axis": axis,
        }  # fmt: skip


class CategoricalFocalCrossentropy(_OfClasses, function=categorical_focal_crossentropy):
    """The cross-entropy of one-hot classes, in which outputs that are right count less (Lin et al. 2018)."""

    def __init__(
        self, alpha: Any = 0.25, gamma: float = 2.0, from_logits: bool = False, label_smoothing: float = 0.0,
        axis: int = -1, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.options = {
            "alpha": alpha, "gamma": gamma, "from_logits": from_logits, "label_smoothing": label_smoothing,
            "axis": axis,
        }  # fmt: skip


class SparseCategoricalCrossentropy(_OfClasses, function=sparse_categorical_crossentropy):
    """The cross-entropy against integer class indices."""

    def __init__(
        self, from_logits: bool = False, ignore_class: int | None = None, axis: int = -1,
        reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(reduction, name)
        self.from_logits = from_logits
        self.options = {"from_logits": from_logits, "ignore_class": ignore_class, "axis": axis}

    def counted_items(self, y_true: Any, items: Tensor) -> Tensor | None:
        ignored = self.options["ignore_class"]
        return None if ignored is None else (as_tensor(y_true) != ignored).to(items.dtype).reshape(items.shape)


class _Wrapped(Loss):
    """A loss of a user's function of targets and outputs, which returns a value for each item or one for all."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(getattr(function, "__name__", "loss"))
        self.function = function

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        found: Tensor = self.function(y_true, y_pred)
        return found


LOSSES: dict[str, Any] = {
    name: each
    for name, each in list(globals().items())
    if isinstance(each, type) and issubclass(each, Loss) and not name.startswith("_") and each is not FunctionLoss
}
LOSS_ALIASES = {"mse": "MeanSquaredError", "mae": "MeanAbsoluteError", "mape": "MeanAbsolutePercentageError",
         "msle": "MeanSquaredLogarithmicError", "bce": "BinaryCrossentropy", "kld": "KLDivergence",
         "kl_divergence": "KLDivergence", "logcosh": "LogCosh"}  # fmt: skip


def get(identifier: Any) -> Any:
    """A loss: of its name, an object, a file's description, or a function of targets and outputs; None is None."""
    name = identifier.lower() if isinstance(identifier, str) else identifier
    found = by_name(LOSSES, LOSS_ALIASES.get(name, identifier) if isinstance(name, str) else identifier, "loss")
    if found is None or isinstance(found, Loss):
        return found
    if not callable(found):
        raise UsageError("E-TRAIN-LOSS", None, f"{type(found).__name__} is not a loss", expected="a name or a function")
    of_function = {each.function: each for each in LOSSES.values() if issubclass(each, FunctionLoss)}
    return of_function[found]() if found in of_function else _Wrapped(found)


def __dir__() -> list[str]:
    return list(__all__)
