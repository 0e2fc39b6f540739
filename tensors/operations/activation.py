"""Activations of neural networks, softmax and losses' logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.expression import op_named
from ..core.registry import operation
from ..core.tensor import Tensor
from .indexing import where
from .operands import apply_in, default_float, dim_of, expression_of

SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
FUNCTIONS = {
    "silu": ("Swish", {}, "x * sigmoid(x)."),
    "mish": ("Mish", {}, "x * tanh(softplus(x))."),
    "hardsigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, "x / 6 + 0.5, clamped to 0 and 1."),
    "hardswish": ("HardSwish", {}, "x * hardsigmoid(x)."),
    "softsign": ("Softsign", {}, "x / (1 + |x|)."),
    "selu": ("Selu", SELU, "The scaled exponential linear unit."),
}


def apply_named(name: str, x: Tensor, attributes: Mapping[str, Any]) -> Tensor:
    """An operator of one float tensor by its ONNX name."""
    if not x.ndim and "axis" in attributes:
        return apply_named(name, x.reshape(1), attributes).reshape([])
    return Tensor(apply_in(op_named(name), [default_float(expression_of(x))], dict(attributes)))


def _define(name: str, op: str, attributes: dict[str, Any], document: str) -> None:
    def made(input: Tensor) -> Tensor:
        return apply_named(op, input, attributes)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


for _name, _row in FUNCTIONS.items():
    _define(_name, *_row)


@operation()
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; `approximate` "tanh" takes that approximation of it."""
    return apply_named("Gelu", input, {"approximate": approximate})


@operation()
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x above the threshold."""
    found = apply_named("Softplus", input * beta, {}) / beta
    return where(input * beta > threshold, input, found)


@operation()
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x, or `negative_slope` times x below 0."""
    return apply_named("LeakyRelu", input, {"alpha": negative_slope})


@operation()
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha * (exp(x) - 1) below 0."""
    return apply_named("Elu", input, {"alpha": alpha})


@operation()
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha * (exp(x / alpha) - 1) below 0."""
    return apply_named("Celu", input, {"alpha": alpha})


@operation()
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return -apply_named("Softplus", -input, {})


@operation()
def softmax(input: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along a dim, by default the last."""
    return _normalized("Softmax", input, dim, dtype)


@operation()
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(x))."""
    return _normalized("LogSoftmax", input, dim, dtype)


def _normalized(op: str, input: Tensor, dim: int, dtype: Any) -> Tensor:
    x = input if dtype is None else input.to(dtype)
    return apply_named(op, x, {"axis": dim_of(dim, x.ndim)})
