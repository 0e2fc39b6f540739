"""Rprop: steps whose sizes grow while the sign of the gradient stays, and shrink when it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.indexing import where
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers


class Rprop(Optimizer):
    """``p -= sign(grad) * size``, for gradients of all data (Riedmiller and Braun 1993).

    Args:
        lr: the first size.
        etas: factors of the size where the sign changes, when no step is made, and where it stays.
        step_sizes: the least and the largest size.
        maximize: step up the gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check(self, group: Group) -> None:
        super().check(group)
        less, more = group["etas"]
        if not 0 < less < 1 < more:
            raise UsageError("E-OPTIM-OPTION", None, f"etas are {group['etas']}", expected="0 < first < 1 < second")

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        return {"prev": zeros(value), "step_size": zeros(value, fill=group["lr"])}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        return dict(zip(("less", "more", "least", "most"), (*group["etas"], *group["step_sizes"]), strict=True))

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        agreement = grad * state["prev"]
        flipped = agreement < 0
        factor = where(flipped, n["less"], where(agreement > 0, n["more"], 1.0))
        size = state["step_size"] = (state["step_size"] * factor).maximum(n["least"]).minimum(n["most"])
        grad = state["prev"] = where(flipped, 0.0, grad)
        return value - grad.sign() * size
