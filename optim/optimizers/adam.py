"""Adam and AdamW: steps of adaptive size from the first two moments of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...ops.training.adam_step import adam_step
from ...tensors.core.expression import apply_all
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers
from .rule_terms import moment_numbers, moments

NUMBERS = ("rate", "scale", "eps", "share1", "keep2", "share2", "shrink", "weight_decay")
"""Numbers of a step in the order of AdamStep's inputs."""


class Adam(Optimizer):
    """``p -= lr * m / (sqrt(v) + eps)`` with moving averages `m` of the gradient and `v` of its square, both corrected
    for their start at 0 (Kingma and Ba 2014, arXiv:1412.6980).

    Args:
        betas: what `m` and `v` keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`; with `decoupled_weight_decay` weights shrink by
            themselves, as in AdamW.
        amsgrad: divide by the largest `v` so far (Reddi et al. 2018).
        maximize: step up the gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        names = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))
        return {name: zeros(value) for name in names}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        first, second = (1 - beta ** state["step"] for beta in group["betas"])
        decay, lr = group["weight_decay"], group["lr"]
        shrink, added = (1 - lr * decay, 0) if group["decoupled_weight_decay"] else (1, decay)
        own = {"rate": lr / first, "scale": second**0.5, "eps": group["eps"], "shrink": shrink, "weight_decay": added}
        return {**own, **moment_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        if not group["amsgrad"]:
            return _in_one(value, grad, state, n)
        value, _, mean, square = moments(value, grad, state, group, n)
        square = state["max_exp_avg_sq"] = state["max_exp_avg_sq"].maximum(square)
        return value - n["rate"] * (mean / (square.sqrt() / n["scale"] + n["eps"]))


def _in_one(value: Tensor, grad: Tensor, state: dict[str, Tensor], n: Numbers) -> Tensor:
    """The next value by one operator."""
    inputs = [value, grad, state["exp_avg"], state["exp_avg_sq"], *(n[name] for name in NUMBERS)]
    found = apply_all(adam_step, [each.expression for each in inputs], outputs=3)
    value, state["exp_avg"], state["exp_avg_sq"] = map(Tensor, found)
    return value


class AdamW(Adam):
    """Adam whose weight decay does not go through the gradient: ``p *= 1 - lr * weight_decay`` (Loshchilov and Hutter
    2017, arXiv:1711.05101)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)
