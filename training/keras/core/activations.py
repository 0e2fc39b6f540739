"""Activations by Keras' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....nn import functional
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from .settings import by_name

__all__ = [
    "celu", "elu", "exponential", "gelu", "get", "hard_sigmoid", "hard_silu", "hard_swish", "leaky_relu", "linear",
    "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "swish",
    "tanh",
]  # fmt: skip
celu, elu, selu, mish = functional.celu, functional.elu, functional.selu, functional.mish
sigmoid, silu, tanh = functional.sigmoid, functional.silu, functional.tanh
softplus, softsign, relu6 = functional.softplus, functional.softsign, functional.relu6
hard_sigmoid, hard_silu = functional.hardsigmoid, functional.hardswish
swish, hard_swish = silu, hard_silu


def linear(x: Tensor) -> Tensor:
    """x as it is."""
    return x


def exponential(x: Tensor) -> Tensor:
    """e to the power x."""
    return x.exp()


def relu(x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Tensor:
    """max(x, 0); with `negative_slope` below the threshold, and at most `max_value`."""
    x = as_tensor(x)
    if not negative_slope and not threshold:
        return functional.relu(x) if max_value is None else x.clamp(0, max_value)
    above = functional.threshold(x, threshold, 0.0) if threshold else functional.relu(x)
    found = above - negative_slope * functional.relu(threshold - x) if negative_slope else above
    return found if max_value is None else found.clamp(max=max_value)


def leaky_relu(x: Tensor, negative_slope: float = 0.2) -> Tensor:
    """x, and below 0 x times `negative_slope`."""
    return functional.leaky_relu(x, negative_slope)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    """x times the normal distribution's share below x."""
    return functional.gelu(x, approximate="tanh" if approximate else "none")


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Shares that sum to 1 along an axis."""
    return functional.softmax(x, axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithms of `softmax`."""
    return functional.log_softmax(x, axis)


ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    name: each for name, each in list(globals().items()) if name in __all__ and callable(each)
}


def get(identifier: Any) -> Any:
    """An activation: of its name, or a function as it is; None is `linear`."""
    return linear if identifier is None else by_name(ACTIVATIONS, identifier, "activation", make=False)


def __dir__() -> list[str]:
    return list(__all__)
