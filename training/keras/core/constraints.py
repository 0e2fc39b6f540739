"""Constraints by Keras' names: what a weight is replaced by after each step of an optimizer."""

from __future__ import annotations

from typing import Any

from ....tensors.core.grad_mode import no_grad
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from .settings import Configured, by_name

__all__ = [
    "Constraint", "MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm", "get", "max_norm", "min_max_norm", "non_neg",
    "unit_norm",
]  # fmt: skip
EPSILON = 1e-7


class Constraint(Configured):
    """Base of constraints: ``constraint(weight)`` is the weight that fits."""

    file_module = "keras.constraints"

    def __call__(self, w: Any) -> Any:
        """The weight itself; subclasses give one that fits."""
        return w


class _OfNorms(Constraint):
    """A constraint of the Euclidean norms of a weight along an axis or several."""

    axis: Any = 0

    def desired(self, norms: Tensor) -> Tensor:
        """The norms that fit."""
        raise NotImplementedError(f"{type(self).__name__} does not define desired()")

    def __call__(self, w: Any) -> Tensor:
        """The weight with the desired norms."""
        axes = list(self.axis) if isinstance(self.axis, list | tuple) else self.axis
        weight = as_tensor(w)
        norms = weight.square().sum(axes, True).sqrt()
        return weight * (self.desired(norms) / (EPSILON + norms))


class MaxNorm(_OfNorms):
    """Norms of at most `max_value`."""

    def __init__(self, max_value: float = 2, axis: Any = 0) -> None:
        self.max_value, self.axis = max_value, axis

    def desired(self, norms: Tensor) -> Tensor:
        return norms.clamp(0, self.max_value)


class MinMaxNorm(_OfNorms):
    """Norms between two values, towards which a weight moves by the share `rate` at each step."""

    def __init__(self, min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0, axis: Any = 0) -> None:
        self.min_value, self.max_value, self.rate, self.axis = min_value, max_value, rate, axis

    def desired(self, norms: Tensor) -> Tensor:
        return self.rate * norms.clamp(self.min_value, self.max_value) + (1 - self.rate) * norms


class UnitNorm(_OfNorms):
    """Norms of 1."""

    def __init__(self, axis: Any = 0) -> None:
        self.axis = axis

    def desired(self, norms: Tensor) -> Tensor:
        return norms * 0 + 1


class NonNeg(Constraint):
    """Elements of at least 0."""

    def __init__(self) -> None:
        pass

    def __call__(self, w: Any) -> Tensor:
        """The weight with 0 in place of negative elements."""
        return as_tensor(w).clamp(min=0)


def constrain(rule: Any) -> None:
    """Replace the weights of an optimizer that have a constraint by those that fit."""
    with no_grad():
        for group in rule.param_groups:
            for weight in group["params"]:
                limit = getattr(weight, "constraint", None)
                if limit is not None:
                    weight.become(limit(weight.detach()))


max_norm, min_max_norm, non_neg, unit_norm = MaxNorm, MinMaxNorm, NonNeg, UnitNorm
CONSTRAINTS = {each.__name__: each for each in (Constraint, MaxNorm, MinMaxNorm, NonNeg, UnitNorm)}


def get(identifier: Any) -> Any:
    """A constraint: of its name, a file's description, or a function of a weight as it is."""
    return by_name(CONSTRAINTS, identifier, "constraint")


def __dir__() -> list[str]:
    return list(__all__)
