"""Adafactor: Adam whose second moment of a matrix is kept as one row and one column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, zeros
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, mixed, shrunk


class Adafactor(Optimizer):
    """Steps relative to the size of a parameter, without momentum (Shazeer and Stern 2018, arXiv:1804.04235), with
    PyTorch's placement of `eps`.

    Args:
        lr: bound of the relative step, which is ``1 / sqrt(step)`` at most.
        beta2_decay: the moment takes ``step ** beta2_decay`` of the new gradient.
        eps: bound of the second moment, by default the spacing of floats at 1; and bound of the size of a parameter.
        d: bound of the root mean square of an update.
        weight_decay: weights shrink by ``lr * weight_decay``.
        maximize: step up the gradient.
    """

    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, options(locals()))

    def check(self, group: Group) -> None:
        super().check(group)
        first, second = group["eps"]
        wrong = [
            f"{name} is {value}"
            for name, value, fits in (
                ("beta2_decay", group["beta2_decay"], group["beta2_decay"] <= 0),
                ("eps", group["eps"], (first is None or first >= 0) and second >= 0),
                ("d", group["d"], group["d"] >= 1),
            )
            if not fits
        ]
        if wrong:
            raise UsageError("E-OPTIM-OPTION", None, wrong[0], expected="beta2_decay <= 0, eps >= 0, d >= 1")

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        if value.ndim < 2:
            return {"variance": zeros(value)}
        shape = value.shape
        return {"row_var": zeros(value, (*shape[:-1], 1)), "col_var": zeros(value, (*shape[:-2], 1, shape[-1]))}

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        step, (first, second) = state["step"], group["eps"]
        bound = float(np.finfo(np.float32).eps) if first is None else first
        return {
            "rate": min(group["lr"], step**-0.5),
            "share": step ** group["beta2_decay"],
            "eps1": bound,
            "eps1_squared": bound * bound,
            "eps2": second,
            "d": group["d"],
            **decay_numbers(group),
        }

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        size = _root_mean_square(value).maximum(n["eps2"]) * n["rate"]
        value = shrunk(value, group, n)
        squares = grad * grad
        if grad.ndim < 2:
            moment = state["variance"] = mixed(state["variance"], squares, n["share"])
        else:
            row = state["row_var"] = mixed(state["row_var"], squares.mean(-1, keepdim=True), n["share"])
            column = state["col_var"] = mixed(state["col_var"], squares.mean(-2, keepdim=True), n["share"])
            moment = row @ column / row.mean(-2, keepdim=True).maximum(n["eps1"])
        moved = grad / moment.maximum(n["eps1_squared"]).sqrt()
        return value - moved * (size / (_root_mean_square(moved) / n["d"]).clamp(min=1.0))


def _root_mean_square(x: Tensor) -> Tensor:
    return ((x * x).sum() / x.numel()).sqrt()
