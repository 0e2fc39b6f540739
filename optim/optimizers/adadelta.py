"""Adadelta: steps of the size of recent steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, require
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed, mixed_square


class Adadelta(Optimizer):
    """``p -= lr * d`` with ``d = sqrt(u + eps) / sqrt(v + eps) * grad``; `v` and `u` are moving averages of the squares
    of `grad` and of `d` (Zeiler 2012, arXiv:1212.5701).

    Args:
        rho: what the averages keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`.
        maximize: step up the gradient.
    """

    zero_state = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check(self, group: Group) -> None:
        super().check(group)
        require(group, "rho", 0, 1 + 1e-12)

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        own = {"lr": group["lr"], "keep": group["rho"], "share": 1 - group["rho"], "eps": group["eps"]}
        return {**own, **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        square = state["square_avg"] = mixed_square(state["square_avg"], grad, n["keep"], n["share"])
        moved = (state["acc_delta"] + n["eps"]).sqrt() / (square + n["eps"]).sqrt() * grad
        state["acc_delta"] = mixed_square(state["acc_delta"], moved, n["keep"], n["share"])
        return value - moved * n["lr"]
