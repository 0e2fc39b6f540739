"""ASGD: stochastic gradient descent whose parameters are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...tensors.core.tensor import Tensor
from ...tensors.operations.indexing import where
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed, mixed


class ASGD(Optimizer):
    """``p -= eta * (grad + lambd * p)`` with ``eta = lr / (1 + lambd * lr * step) ** alpha``; the state ``ax`` is the
    mean of the parameters from step `t0` on (Polyak and Juditsky 1992).

    Args:
        lambd: how fast steps and parameters shrink.
        alpha: power of the decay of steps.
        t0: step from which parameters are averaged.
        weight_decay: a penalty whose gradient is added to `grad`.
        maximize: step up the gradient.
    """

    counters: ClassVar[Mapping[str, float]] = {"step": 0, "eta": 0.0, "mu": 1.0}
    nonnegative = ("lambd", "alpha", "t0")
    zero_state = ("ax",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        step, lr = state["step"], group["lr"]
        eta, mu = state["eta"] if step > 1 else lr, state["mu"]
        state["eta"] = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
        state["mu"] = 1 / max(1, step - group["t0"])
        own = {"eta": eta, "keep": 1 - group["lambd"] * eta, "mu": mu, "is_first": mu == 1}
        return {**own, **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        value = value * n["keep"] - grad * n["eta"]
        state["ax"] = where(n["is_first"], value, mixed(state["ax"], value, n["mu"]))
        return value
