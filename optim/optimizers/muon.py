"""Muon: momentum of matrices, made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer, options, require
from ..core.step_numbers import Numbers
from .rule_terms import decay_numbers, mixed, shrunk

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic whose iteration brings singular values near 1 fast."""
RATES = (None, "original", "match_rms_adamw")
MAX_STEPS = 99


class Muon(Optimizer):
    """Steps along the nearest orthogonal matrix to the momentum, by Newton-Schulz iteration (Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon/). Parameters are matrices; others need another optimizer.

    Args:
        weight_decay: weights shrink by ``lr * weight_decay``.
        nesterov: look a step ahead along the momentum.
        ns_coefficients, ns_steps: the polynomial, and how often it is applied.
        adjust_lr_fn: "original" scales steps of a matrix [A, B] by ``sqrt(max(1, A / B))``, "match_rms_adamw" by
            ``0.2 * sqrt(max(A, B))`` (Liu et al. 2025, arXiv:2502.16982).
    """

    counters: ClassVar[Mapping[str, float]] = {}
    takes_complex = False
    nonnegative = ("momentum",)
    zero_state = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, options(locals()))

    def check(self, group: Group) -> None:
        super().check(group)
        require(group, "ns_steps", 0, MAX_STEPS + 1)
        if group["adjust_lr_fn"] not in RATES:
            why = f"adjust_lr_fn is {group['adjust_lr_fn']!r}"
            raise UsageError("E-OPTIM-OPTION", None, why, expected=", ".join(map(repr, RATES)))
        if len(group["ns_coefficients"]) != len(COEFFICIENTS):
            raise UsageError("E-OPTIM-OPTION", None, "ns_coefficients are three numbers", hint="Leave the default")
        for each in group["params"]:
            if each.ndim != len(("rows", "columns")):
                why = f"Muon updates matrices; a parameter has shape {list(each.shape)}"
                raise UsageError("E-OPTIM-PARAMS", None, why, hint="Give it to another optimizer")

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        own = {"lr": group["lr"], "momentum": group["momentum"], "share": 1 - group["momentum"], "eps": group["eps"]}
        return {**own, **dict(zip("abc", group["ns_coefficients"], strict=True)), **decay_numbers(group)}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        moved = state["momentum_buffer"] = mixed(state["momentum_buffer"], grad, n["share"])
        if group["nesterov"]:
            moved = mixed(grad, moved, n["momentum"])
        moved = orthogonal(moved, n, group["ns_steps"])
        return shrunk(value, group, n) - moved * (n["lr"] * _scale(value.shape, group["adjust_lr_fn"]))


def orthogonal(x: Tensor, n: Numbers, steps: int) -> Tensor:
    """A matrix with the singular vectors of `x`, and singular values near 1; products are rounded to bf16."""
    tall = x.shape[0] > x.shape[1]
    x = _rounded(x.T if tall else x)
    x = _rounded(x / _rounded((x * x).sum().sqrt()).maximum(n["eps"]))
    for _ in range(steps):
        gram = _rounded(x @ x.T)
        polynomial = _rounded(gram * n["b"] + (gram @ gram) * n["c"])
        x = _rounded(x * n["a"] + polynomial @ x)
    return x.T if tall else x


def _rounded(x: Tensor) -> Tensor:
    """With the digits of bf16."""
    return x.to("bf16").to(x.dtype)


def _scale(shape: tuple[int, ...], adjustment: str | None) -> float:
    rows, columns = shape
    if adjustment == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
