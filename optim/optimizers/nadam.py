"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, moment_numbers, moments


class NAdam(Optimizer):
    """Adam that steps along the momentum of the next step, which is weighted by
    ``beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay))`` (Dozat 2016).

    Args:
        betas: what the moving averages of the gradient and of its square keep at each step.
        weight_decay: a penalty whose gradient is added to `grad`; with `decoupled_weight_decay` weights shrink by
            themselves, as in AdamW.
        maximize: step up the gradient.
    """

    counters: ClassVar[Mapping[str, float]] = {"step": 0, "mu_product": 1.0}
    nonnegative = ("momentum_decay",)
    zero_state = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        step, decay = state["step"], group["momentum_decay"]
        first, second = group["betas"]
        mu, following = (first * (1 - 0.5 * 0.96 ** (each * decay)) for each in (step, step + 1))
        product = state["mu_product"] = float(np.float32(state["mu_product"] * mu))
        own = {
            "rate": group["lr"] * (1 - mu) / (1 - product),
            "momentum_rate": group["lr"] * following / (1 - product * following),
            "scale": 1 - second**step,
            "eps": group["eps"],
        }
        return {**own, **moment_numbers(group), **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        value, grad, mean, square = moments(value, grad, state, group, n)
        scale = (square / n["scale"]).sqrt() + n["eps"]
        return value - n["rate"] * (grad / scale) - n["momentum_rate"] * (mean / scale)
