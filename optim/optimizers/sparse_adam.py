"""SparseAdam: Adam of the rows that a gradient reaches, as of an embedding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options
from ..core.step_numbers import Numbers
from .rule_terms import mixed, mixed_square, moment_numbers


class SparseAdam(Optimizer):
    """As `Adam`, but rows whose gradient is 0 keep their value and their moving averages.

    Gradients are dense here; PyTorch's are sparse, and rows that such a gradient names with zeros are updated there.

    Args:
        betas: what the moving averages of the gradient and of its square keep at each step.
        maximize: step up the gradient.
    """

    zero_state = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, options(locals()))

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        first, second = group["betas"]
        rate = group["lr"] * math.sqrt(1 - second ** state["step"]) / (1 - first ** state["step"])
        return {"rate": rate, "eps": group["eps"], **moment_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        where, others = FUNCTIONS["where"], tuple(range(1, grad.ndim))
        reached = grad.ne(0).any(others, True) if others else grad.ne(0)
        mean = mixed(state["exp_avg"], grad, n["share1"])
        square = mixed_square(state["exp_avg_sq"], grad, n["keep2"], n["share2"])
        state["exp_avg"] = where(reached, mean, state["exp_avg"])
        state["exp_avg_sq"] = where(reached, square, state["exp_avg_sq"])
        moved: Tensor = where(reached, value - n["rate"] * (mean / (square.sqrt() + n["eps"])), value)
        return moved
