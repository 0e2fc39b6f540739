"""RAdam: Adam that does not adapt while the variance of its second moment is large."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.tensor import Tensor
from ...tensors.operations.indexing import where
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, moment_numbers, moments

MIN_LENGTH = 5.0
"""Length of the moving average from which its variance is known well enough."""


class RAdam(Optimizer):
    """Adam with a rectified step size; while that is not defined, momentum alone (Liu et al. 2019, arXiv:1908.03265).

    Args:
        betas: what the moving averages of the gradient and of its square keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`; with `decoupled_weight_decay` weights shrink by
            themselves, as in AdamW.
        maximize: step up the gradient.
    """

    zero_state = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        step = state["step"]
        first, second = group["betas"]
        correction = 1 - second**step
        longest = 2 / (1 - second) - 1
        length = longest - 2 * step * second**step / correction
        adapts = length > MIN_LENGTH
        rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) if adapts else 0
        own = {
            "rate": group["lr"] / (1 - first**step),
            "adapts": adapts,
            "rectified": (rectified * correction) ** 0.5,
            "eps": group["eps"],
        }
        return {**own, **moment_numbers(group), **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        value, _, mean, square = moments(value, grad, state, group, n)
        adapted = where(n["adapts"], n["rectified"] / (square.sqrt() + n["eps"]), 1.0)
        return value - mean * n["rate"] * adapted
