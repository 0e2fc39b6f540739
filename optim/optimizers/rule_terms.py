"""Terms that several update rules have in common."""

from __future__ import annotations

from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.step_numbers import Numbers


def mixed(old: Tensor, new: Tensor, share: Tensor) -> Tensor:
    """``old + share * (new - old)``: an exponential moving average."""
    return old + share * (new - old)


def mixed_square(old: Tensor, new: Tensor, keep: Tensor, share: Tensor) -> Tensor:
    """``keep * old + share * new ** 2``."""
    return old * keep + share * (new * new)


def decayed(grad: Tensor, value: Tensor, group: dict[str, Any], n: Numbers) -> Tensor:
    """The gradient with that of the penalty ``weight_decay / 2 * value ** 2``."""
    return grad + value * n["weight_decay"] if group["weight_decay"] else grad


def shrunk(value: Tensor, group: dict[str, Any], n: Numbers) -> Tensor:
    """The value after weight decay that does not go through the gradient."""
    return value * n["shrink"] if group["weight_decay"] else value


def moments(
    value: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any], n: Numbers
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and gradient after weight decay of the kind that the group says, and the moving averages of the gradient
    and of its square, which become the state."""
    if group["decoupled_weight_decay"]:
        value = shrunk(value, group, n)
    else:
        grad = decayed(grad, value, group, n)
    mean = state["exp_avg"] = mixed(state["exp_avg"], grad, n["share1"])
    square = state["exp_avg_sq"] = mixed_square(state["exp_avg_sq"], grad, n["keep2"], n["share2"])
    return value, grad, mean, square


def decay_numbers(group: dict[str, Any]) -> dict[str, float]:
    """The numbers of both kinds of weight decay."""
    if not group["weight_decay"]:
        return {}
    return {"weight_decay": group["weight_decay"], "shrink": 1 - group["lr"] * group["weight_decay"]}


def moment_numbers(group: dict[str, Any]) -> dict[str, float]:
    """Weights of the old and the new value in moving averages of gradients."""
    first, second = group["betas"]
    return {"share1": 1 - first, "keep2": second, "share2": 1 - second}
