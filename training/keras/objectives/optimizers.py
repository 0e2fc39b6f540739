"""Optimizers by Keras' names, with Keras' defaults: settings, which `compile` binds to the parameters of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ....optim import Optimizer as Rule
from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ..core.constraints import constrain
from ..core.settings import Configured, by_name, snake_case, without_effect
from . import schedules, update_rules

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Nadam", "Optimizer", "RMSprop", "get"]


class Optimizer(Configured):
    """Base of optimizers.

    Args:
        learning_rate: a number, or a schedule by the number of the step.
        weight_decay: by how much, times the learning rate, weights shrink at each step.
        clipnorm, clipvalue, global_clipnorm: the largest norm of each gradient, the largest element, and the largest
            norm of all gradients together.

    Attributes:
        rule: the optimizer of a model's parameters, once there is one.
    """

    file_module: ClassVar[str] = "keras.optimizers"
    update: ClassVar[Any] = None

    def __init__(
        self, learning_rate: Any = 1e-3, weight_decay: float | None = None, clipnorm: float | None = None,
        clipvalue: float | None = None, global_clipnorm: float | None = None, name: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        without_effect(type(self), options)
        self.name = name or snake_case(type(self).__name__)
        self.rule: Any = None
        rate = schedules.get(learning_rate)
        self._schedule = rate if callable(rate) else None
        self._rate = float(rate(0)) if callable(rate) else float(rate)
        self._extra = {"clipnorm": clipnorm, "clipvalue": clipvalue, "decay": weight_decay or 0.0}
        self._global = global_clipnorm
        self._options: dict[str, Any] = {}

    def bound(self, parameters: Iterable[Any]) -> Rule:
        """The optimizer of some parameters."""
        made: Any = self.update(parameters, lr=self._rate, **self._options)
        made.schedule = self._schedule
        for name, value in self._extra.items():
            setattr(made, name, value)
        if self._global is not None:
            made.register_step_pre_hook(lambda rule, *_: _clip(rule, self._global))
        made.register_step_post_hook(lambda rule, *_: constrain(rule))
        self.rule = made
        return made

    @property
    def learning_rate(self) -> Any:
        """The learning rate; what is set counts from the next step on."""
        if self.rule is None:
            return self._rate if self._schedule is None else self._schedule
        return self.rule.param_groups[0]["lr"] if self._schedule is None else self._schedule(self.iterations)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self._rate, self._schedule = float(value), None
        if self.rule is not None:
            self.rule.schedule = None
            for group in self.rule.param_groups:
                group["lr"] = self._rate

    @property
    def iterations(self) -> int:
        """Steps so far."""
        states = [] if self.rule is None else list(self.rule.state.values())
        return int(states[0]["step"]) if states else 0


def _clip(rule: Any, most: float | None) -> None:
    """Shrink all gradients together to a norm."""
    owners = [each for group in rule.param_groups for each in group["params"] if each.grad is not None]
    squares: list[Tensor] = [each.grad.square().sum() for each in owners]
    if squares and most is not None:
        norm = sum(squares[1:], start=squares[0]).sqrt()
        for each in owners:
            each.grad = each.grad * (most / norm.clamp(min=most))


class SGD(Optimizer):
    """Gradient descent, with momentum."""

    update = update_rules.SGD

    def __init__(
        self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self._options = {"momentum": float(momentum), "nesterov": nesterov}


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015)."""

    update = update_rules.Adam

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
        amsgrad: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, **options)
        self._options = {"betas": (beta_1, beta_2), "eps": epsilon, "amsgrad": amsgrad}


class AdamW(Adam):
    """Adam whose weights shrink at each step."""

    def __init__(
        self, learning_rate: Any = 0.001, weight_decay: float = 0.004, beta_1: float = 0.9, beta_2: float = 0.999,
        epsilon: float = 1e-7, amsgrad: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay=weight_decay, **options)


class Nadam(Optimizer):
    """Adam with Nesterov's momentum."""

    update = update_rules.NAdam

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, **options)
        self._options = {"betas": (beta_1, beta_2), "eps": epsilon, "momentum_decay": 1.0}


class Adamax(Optimizer):
    """Adam with the infinity norm."""

    update = update_rules.Adamax

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, **options)
        self._options = {"beta_1": beta_1, "beta_2": beta_2, "eps": epsilon}


class RMSprop(Optimizer):
    """Gradients divided by the root of their mean square."""

    update = update_rules.RMSprop

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.9, momentum: float = 0.0, epsilon: float = 1e-7,
        centered: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, **options)
        self._options = {"rho": rho, "momentum": float(momentum), "eps": epsilon, "centered": centered}


class Adagrad(Optimizer):
    """Steps that shrink with the gradients seen so far."""

    update = update_rules.Adagrad

    def __init__(
        self, learning_rate: Any = 0.001, initial_accumulator_value: float = 0.1, epsilon: float = 1e-7, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self._options = {"initial_accumulator_value": initial_accumulator_value, "eps": epsilon}


class Adadelta(Optimizer):
    """Steps by the root of mean squared steps over that of gradients."""

    update = update_rules.Adadelta

    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.95, epsilon: float = 1e-7, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self._options = {"rho": rho, "eps": epsilon}


class Lion(Optimizer):
    """Steps by the sign of a momentum."""

    update = update_rules.Lion

    def __init__(self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.99, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self._options = {"betas": (beta_1, beta_2)}


OPTIMIZERS: dict[str, Any] = {
    name: each for name, each in list(globals().items()) if name in __all__ and name not in ("Optimizer", "get")
}


class _Given(Optimizer):
    """An optimizer that was made of the parameters elsewhere, or a function of the parameters."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self._made = made

    def bound(self, parameters: Iterable[Any]) -> Rule:
        """The optimizer itself."""
        found: Rule = self._made if isinstance(self._made, Rule) else self._made(parameters)
        if isinstance(found, Rule):
            found.register_step_post_hook(lambda rule, *_: constrain(rule))
        self.rule = found
        return found


def get(identifier: Any) -> Any:
    """An optimizer: of its name, an object, a file's description; those of `cc.optim` and functions of parameters."""
    found = by_name(OPTIMIZERS, identifier, "optimizer")
    if isinstance(found, Optimizer):
        return found
    if not callable(found) and not isinstance(found, Rule):
        raise UsageError("E-TRAIN-OPTIMIZER", None, f"{type(found).__name__} is not an optimizer")
    return _Given(found)


def __dir__() -> list[str]:
    return list(__all__)
