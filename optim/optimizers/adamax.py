"""Adamax: Adam with the largest recent gradient in place of the second moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed, mixed


class Adamax(Optimizer):
    """``p -= lr / (1 - beta1 ** step) * m / u`` with ``u = max(beta2 * u, abs(grad) + eps)`` (Kingma and Ba 2014,
    arXiv:1412.6980).

    Args:
        betas: what the average `m` of gradients, and `u`, keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`.
        maximize: step up the gradient.
    """

    zero_state = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        first, second = group["betas"]
        rate = group["lr"] / (1 - first ** state["step"])
        return {"rate": rate, "share": 1 - first, "keep": second, "eps": group["eps"], **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        mean = state["exp_avg"] = mixed(state["exp_avg"], grad, n["share"])
        largest = state["exp_inf"] = (state["exp_inf"] * n["keep"]).maximum(grad.abs() + n["eps"])
        return value - n["rate"] * (mean / largest)
