"""SGD: stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, decayed


class SGD(Optimizer):
    """``p -= lr * v``, where ``v = momentum * v + (1 - dampening) * grad``, and at the first step ``v = grad``.

    Args:
        nesterov: step along ``grad + momentum * v`` in place of `v` (Sutskever et al. 2013).
        maximize: step up the gradient.
    """

    unsaved: ClassVar[frozenset[str]] = frozenset({"step"})
    nonnegative = ("momentum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check(self, group: Group) -> None:
        super().check(group)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            why = f"nesterov with momentum {group['momentum']} and dampening {group['dampening']}"
            raise UsageError("E-OPTIM-OPTION", None, why, expected="a momentum, and no dampening")

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        return {"momentum_buffer": zeros(value)} if group["momentum"] else {}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        share = 1 if state["step"] == 1 else 1 - group["dampening"]
        return {"lr": group["lr"], "momentum": group["momentum"], "share": share, **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        grad = decayed(grad, value, group, n)
        if group["momentum"]:
            added = grad * n["share"] if group["dampening"] else grad
            moved = state["momentum_buffer"] = state["momentum_buffer"] * n["momentum"] + added
            grad = grad + moved * n["momentum"] if group["nesterov"] else moved
        return value - grad * n["lr"]

    def loaded(self, state: dict[str, Any], given: Mapping[str, Any]) -> None:
        state["step"] = int("momentum_buffer" in given)
