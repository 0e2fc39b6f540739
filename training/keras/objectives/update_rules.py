"""Update rules that are Keras' own, and what Keras adds to all of them: schedules, clipping, weight decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from .... import optim
from ....optim.core.optimizer import Group, Optimizer, options, zeros
from ....optim.core.step_numbers import Numbers
from ....optim.optimizers.rule_terms import mixed, mixed_square
from ....tensors.core.tensor import Tensor


class OfKeras(Optimizer):
    """Settings that Keras adds to every update rule.

    Attributes:
        schedule: the learning rate by the number of the step, from 0 on; None for that of the group.
        clipnorm, clipvalue: the largest norm of a gradient, and the largest element; None for any.
        decay: by how much, times the learning rate, weights shrink at each step.
    """

    schedule: Any = None
    clipnorm: float | None = None
    clipvalue: float | None = None
    decay: float = 0.0

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        step = state["step"]
        rate = float(group["lr"] if self.schedule is None else self.schedule(step))
        numbers = super().advance({**group, "lr": rate}, state)
        state["step"] = step + 1
        return {**numbers, "most": self.clipnorm or self.clipvalue or 0.0, "kept": 1 - rate * self.decay}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        if self.clipnorm is not None:
            grad = grad * (n["most"] / grad.square().sum().sqrt().maximum(n["most"]))
        elif self.clipvalue is not None:
            grad = grad.minimum(n["most"]).maximum(-n["most"])
        return super().update(value * n["kept"] if self.decay else value, grad, state, group, n)


class Adam(OfKeras, optim.Adam):
    """Adam whose epsilon is added before the correction of the bias (``epsilon hat`` of the paper)."""

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        numbers = dict(super().advance(group, state))
        return {**numbers, "eps": numbers["eps"] / numbers["scale"]}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        return super().update(value, grad, state, group, n)


class NAdam(OfKeras, optim.NAdam):
    """Adam with Nesterov's momentum."""


class Adadelta(OfKeras, optim.Adadelta):
    """Steps by the root of mean squared steps over that of gradients."""


class Lion(OfKeras, optim.Lion):
    """Steps by the sign of a momentum."""

    counters: ClassVar[Mapping[str, float]] = {"step": 0}


class _Plain(Optimizer):
    """Base of rules with one number a step, the learning rate."""

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        state["step"] += 1
        numbers = {name: each for name, each in group.items() if isinstance(each, float)}
        return {**numbers, "step": float(state["step"])}


class _SGD(_Plain):
    def __init__(self, params: Iterable[Any], lr: float = 1e-2, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        return {"momentum_buffer": zeros(value)} if group["momentum"] else {}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        step = grad * n["lr"]
        if not group["momentum"]:
            return value - step
        moved = state["momentum_buffer"] = state["momentum_buffer"] * n["momentum"] - step
        return value + (moved * n["momentum"] - step if group["nesterov"] else moved)


class SGD(OfKeras, _SGD):
    """``v = momentum * v - lr * grad; p += v``."""


class _RMSprop(_Plain):
    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, rho: float = 0.9, momentum: float = 0.0, eps: float = 1e-7,
        centered: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        names = {"velocity": True, "momentum": group["momentum"], "average": group["centered"]}
        return {name: zeros(value) for name, wanted in names.items() if wanted}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        share = 1 - n["rho"]
        square = state["velocity"] = mixed_square(state["velocity"], grad, n["rho"], share)
        if group["centered"]:
            mean = state["average"] = mixed(state["average"], grad, share)
            square = square - mean * mean
        step = grad * n["lr"] / (square + n["eps"]).sqrt()
        if group["momentum"]:
            step = state["momentum"] = state["momentum"] * n["momentum"] + step
        return value - step


class RMSprop(OfKeras, _RMSprop):
    """``p -= lr * grad / sqrt(v + epsilon)`` with the moving average `v` of squares."""


class _Adagrad(_Plain):
    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, initial_accumulator_value: float = 0.1, eps: float = 1e-7
    ) -> None:
        super().__init__(params, options(locals()))

    def begin(self, value: Tensor, group: Group) -> dict[str, Tensor]:
        return {"accumulator": zeros(value, fill=group["initial_accumulator_value"])}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        total = state["accumulator"] = state["accumulator"] + grad * grad
        return value - grad * n["lr"] / (total + n["eps"]).sqrt()


class Adagrad(OfKeras, _Adagrad):
    """``p -= lr * grad / sqrt(sum of squares + epsilon)``."""


class _Adamax(_Plain):
    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, beta_1: float = 0.9, beta_2: float = 0.999, eps: float = 1e-7
    ) -> None:
        super().__init__(params, options(locals()))

    zero_state = ("momentum", "norm")

    def advance(self, group: Group, state: dict[str, Any]) -> Mapping[str, Any]:
        numbers = dict(super().advance(group, state))
        return {**numbers, "rate": numbers["lr"] / (1 - numbers["beta_1"] ** numbers["step"])}

    def update(self, value: Tensor, grad: Tensor, state: dict[str, Tensor], group: Group, n: Numbers) -> Tensor:
        mean = state["momentum"] = mixed(state["momentum"], grad, 1 - n["beta_1"])
        norm = state["norm"] = (state["norm"] * n["beta_2"]).maximum(grad.abs())
        return value - n["rate"] * mean / (norm + n["eps"])


class Adamax(OfKeras, _Adamax):
    """Adam with the infinity norm."""
