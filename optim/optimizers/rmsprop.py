"""RMSprop: gradients divided by the root of their mean square."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed, mixed, mixed_square


class RMSprop(Optimizer):
    """``p -= lr * grad / (sqrt(v) + eps)`` with the moving average `v` of the square of `grad` (Tieleman and Hinton
    2012).

    Args:
        alpha: what averages keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`.
        momentum: step along ``b = momentum * b + grad / (sqrt(v) + eps)``.
        centered: subtract the square of the mean gradient from `v`.
        maximize: step up the gradient.
    """

    nonnegative = ("momentum", "alpha")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        names = {"square_avg": True, "momentum_buffer": group["momentum"], "grad_avg": group["centered"]}
        return {name: zeros(value) for name, wanted in names.items() if wanted}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        own = {"lr": group["lr"], "keep": group["alpha"], "share": 1 - group["alpha"], "eps": group["eps"]}
        return {**own, "momentum": group["momentum"], **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        square = state["square_avg"] = mixed_square(state["square_avg"], grad, n["keep"], n["share"])
        if group["centered"]:
            mean = state["grad_avg"] = mixed(state["grad_avg"], grad, n["share"])
            square = square - mean * mean
        moved = grad / (square.sqrt() + n["eps"])
        if group["momentum"]:
            moved = state["momentum_buffer"] = state["momentum_buffer"] * n["momentum"] + moved
        return value - moved * n["lr"]
