"""Learning rates by functions of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..core.optimizer import Optimizer
from .scheduler import LRScheduler, per_group

Factor = Callable[[int], float]


class _OfFunctions(LRScheduler):
    """A schedule by one function, or one for each group."""

    external: ClassVar[frozenset[str]] = frozenset({"optimizer", "lr_lambdas"})
    has_functions = True

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Any] = per_group("lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def factors(self) -> list[float]:
        """The function of the current step, for each group."""
        return [factor(self.last_epoch) for factor in self.lr_lambdas]


class LambdaLR(_OfFunctions):
    """The first learning rate times a function of the step. The state is without the functions."""

    def get_lr(self) -> list[float]:
        return [base * factor for base, factor in zip(self.base_lrs, self.factors(), strict=True)]


class MultiplicativeLR(_OfFunctions):
    """The last learning rate times a function of the step. The state is without the functions."""

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self.current()
        return [rate * factor for rate, factor in zip(self.current(), self.factors(), strict=True)]
