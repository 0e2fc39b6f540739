"""Metric: base of metrics. Means over items, ratios of sums, and Keras' form with variables."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....runtime.base.errors import UsageError
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.registry import FUNCTIONS
from ....tensors.core.tensor import Tensor
from ....tensors.core.trace import TRACE
from ....tensors.operations.creation import as_tensor, ones
from ..core import initializers
from ..core.masking import mask_of
from ..core.settings import Configured, snake_case


class Variable(Tensor):
    """A value that a metric keeps from batch to batch."""

    def __init__(self, values: Any) -> None:
        super().__init__(as_tensor(values).detach().expression)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        return Variable(self)

    def assign(self, value: Any) -> Variable:
        """Have the values of a number, an array or a tensor, which is broadcast."""
        with no_grad():
            self.become(as_tensor(value).to(self.dtype).expand(self.shape) + 0)
        return self

    def assign_add(self, value: Any) -> Variable:
        """Add to the values."""
        return self.assign(self + value)

    def assign_sub(self, value: Any) -> Variable:
        """Subtract from the values."""
        return self.assign(self - value)


class Metric(Configured):
    """Base of metrics. A subclass defines ``values(y_true, y_pred)``, a value for each item, whose mean is reported.

    Or, as in Keras, it makes variables by `add_variable`, adds to them in `update_state`, and defines `result`.
    """

    file_module: ClassVar[str] = "keras.metrics"

    def __init__(self, name: str | None = None, dtype: Any = None) -> None:
        self.name = name or snake_case(type(self).__name__)
        self._sums: list[float] = []
        self._variables: list[Variable] = []

    def add_variable(
        self, shape: Any = (), initializer: Any = None, dtype: Any = None, aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:  # fmt: skip
        """A new variable of a shape, zeros by default."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        values = as_tensor(initializers.get(initializer or "zeros")(shape))
        self._variables.append(Variable(values.to(dtype or "f32")))
        return self._variables[-1]

    def add_weight(
        self, shape: Any = (), initializer: Any = None, dtype: Any = None, name: str | None = None
    ) -> Variable:
        """`add_variable` by its older name."""
        return self.add_variable(shape, initializer, dtype, name=name)

    @property
    def variables(self) -> list[Variable]:
        """The variables, of metrics inside too."""
        inside = [each for each in vars(self).values() if isinstance(each, Metric)]
        return [*self._variables, *(variable for each in inside for variable in each.variables)]

    def values(self, y_true: Any, y_pred: Any) -> Tensor:
        """A value for each item."""
        raise NotImplementedError(f"{type(self).__name__} does not define values()")

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        """Numbers or arrays to sum over batches: by default the sum of items and their count."""
        return weighted_sum(self.values(y_true, y_pred), weight)

    def parts(self, y_true: Any, y_pred: Any) -> Sequence[Tensor]:
        """Values that a model sums over batches; a single one is the mean over items."""
        if type(self).update_state is not Metric.update_state:
            return self._added(y_true, y_pred)
        mask = mask_of(y_pred)
        if type(self).ratio is Metric.ratio and mask is not None:
            return self.sums(y_true, y_pred, mask.to("f32"))
        if type(self).ratio is Metric.ratio:
            return [self.values(y_true, y_pred).mean()]
        return self.sums(y_true, y_pred, None)

    def ratio(self, sums: Sequence[Any]) -> Any:
        """The metric by the sums of its parts."""
        if type(self).update_state is Metric.update_state:
            return sums[0] / sums[1] if sums[1] else 0.0
        scratch, left = copy.deepcopy(self), list(sums)
        for each in scratch.variables:
            values, left = left[: each.numel()], left[each.numel() :]
            joined = [as_tensor(item).reshape(1) for item in values]
            each.assign(_joined(joined).reshape(each.shape))
        return scratch.result()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Take a batch into account; `sample_weight` says how much each item counts."""
        weight = None if sample_weight is None else as_tensor(sample_weight).to("f32")
        parts = [amount(each) for each in self.sums(as_tensor(y_true), as_tensor(y_pred), weight)]
        self._sums = [a + b for a, b in zip(self._sums or [0.0] * len(parts), parts, strict=True)]

    def result(self) -> Any:
        """The metric of the batches so far."""
        return float(self.ratio(self._sums)) if self._sums else 0.0

    def reset_state(self) -> None:
        """Forget the batches."""
        self._sums = []
        for each in self.variables:
            each.assign(0)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Take a batch into account; the metric so far."""
        self.update_state(*arguments, **options)
        return self.result()

    def _added(self, y_true: Any, y_pred: Any) -> list[Tensor]:
        """The amounts that a batch adds to each element of the variables, and a 0."""
        self._require_sums(y_true, y_pred)
        scratch = copy.deepcopy(self)
        scratch.reset_state()
        scratch.update_state(y_true, y_pred)
        flat = [each.reshape(-1) for each in scratch.variables]
        return [*(each[number] for each in flat for number in range(each.numel())), as_tensor(np.float32(0))]

    def _require_sums(self, y_true: Any, y_pred: Any) -> None:
        """UsageError for variables that an equal batch changes by other numbers for the second time."""
        scratch = copy.deepcopy(self)
        scratch.reset_state()
        found = []
        for _ in range(2):
            scratch.update_state(*(ones(*each.shape, dtype=each.dtype) for each in (y_true, y_pred)))
            found.append([(each + 0).array() for each in scratch.variables])
        if not all(np.allclose(2 * once, twice, equal_nan=True) for once, twice in zip(*found, strict=True)):
            why = f"the variables of {type(self).__name__} are not sums over batches, which fit() and evaluate() need"
            raise UsageError("E-TRAIN-METRIC", None, why, hint="Add to the variables in update_state()")


class Sum(Metric):
    """The sum of values, which are given without targets."""

    def __init__(self, name: str | None = "sum", dtype: Any = None) -> None:
        super().__init__(name)
        self.total = self.add_variable(name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Take values into account."""
        self.total.assign_add(_weighted(values, sample_weight)[0])

    def result(self) -> Any:
        """The sum so far."""
        return in_reach(self.total)


class Mean(Metric):
    """The mean of values, which are given without targets."""

    def __init__(self, name: str | None = "mean", dtype: Any = None) -> None:
        super().__init__(name)
        self.total, self.count = self.add_variable(name="total"), self.add_variable(name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:  # type: ignore[override]
        """Take values into account."""
        total, count = _weighted(values, sample_weight)
        self.total.assign_add(total)
        self.count.assign_add(count)

    def result(self) -> Any:
        """The mean so far; 0 without any."""
        return in_reach(share(self.total, self.count))


def amount(item: Tensor) -> Any:
    """What is added up over batches: a number, or an array."""
    return item.detach().array() if item.ndim else float(item)


def in_reach(item: Tensor) -> Any:
    """A number, or in a trace the tensor."""
    return float(item) if TRACE.changes is None else item + 0


def share(part: Any, whole: Any) -> Any:
    """A part of a sum; 0 of nothing."""
    if isinstance(whole, Tensor):
        return part / whole.clamp(min=1e-30)
    return part / whole if whole else 0.0


def _weighted(values: Any, weight: Any) -> list[Tensor]:
    return weighted_sum(as_tensor(values).to("f32"), None if weight is None else as_tensor(weight).to("f32"))


def weighted_sum(values: Tensor, weight: Tensor | None) -> list[Tensor]:
    """The sum of items [N, ...], each the mean over its other dims, and how many they are.

    Args:
        weight: how much each item counts, of fewer dims or broadcast.
    """
    values = values.to("f32")
    if weight is None:
        rows = values.reshape(-1) if values.ndim < 2 else values.flatten(1).mean(-1)
        return [rows.sum(), ones(rows.numel()).sum()]
    weight = squeezed(weight, values)
    values = values.squeeze(-1) if values.ndim == weight.ndim + 1 and values.shape[-1] == 1 else values
    for _ in range(values.ndim - weight.ndim):
        values = values.mean(-1)
    weight = weight.expand(values.shape)
    values = values * weight
    if values.ndim > 1:
        values, weight = values.flatten(1).mean(-1), weight.flatten(1).mean(-1)
    return [values.sum(), weight.sum()]


def squeezed(weight: Tensor, values: Tensor) -> Tensor:
    """Weights without a last dim of length 1 too many."""
    return weight.squeeze(-1) if weight.ndim == values.ndim + 1 and weight.shape[-1] == 1 else weight


def _joined(items: list[Tensor]) -> Tensor:
    found: Tensor = FUNCTIONS["cat"](items)
    return found
