"""Adagrad: steps that shrink with the gradients seen so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed


class Adagrad(Optimizer):
    """``p -= lr / (1 + (step - 1) * lr_decay) * grad / (sqrt(sum of grad ** 2) + eps)`` (Duchi et al. 2011).

    Args:
        weight_decay: a penalty whose gradient is added to `grad`.
        initial_accumulator_value: the sum before the first step.
        maximize: step up the gradient.
    """

    nonnegative = ("lr_decay", "initial_accumulator_value")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        return {"sum": zeros(value, fill=group["initial_accumulator_value"])}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        return {"rate": rate, "eps": group["eps"], **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        total = state["sum"] = state["sum"] + grad * grad
        return value - n["rate"] * (grad / (total.sqrt() + n["eps"]))
