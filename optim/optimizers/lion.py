"""Lion: steps of one size along the sign of the momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, mixed, shrunk


class Lion(Optimizer):
    """``p = p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * grad)``, then
    ``m = beta2 * m + (1 - beta2) * grad`` (Chen et al. 2023, arXiv:2302.06675).

    Args:
        maximize: step up the gradient.
    """

    counters: ClassVar[Mapping[str, float]] = {}
    zero_state = ("exp_avg",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        first, second = group["betas"]
        return {"lr": group["lr"], "share1": 1 - first, "share2": 1 - second, **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        mean = state["exp_avg"]
        state["exp_avg"] = mixed(mean, grad, n["share2"])
        return shrunk(value, group, n) - mixed(mean, grad, n["share1"]).sign() * n["lr"]
