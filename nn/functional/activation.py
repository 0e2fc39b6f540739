"""Activations. Those that are functions of the package too are the same objects here."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.expression import apply, op_named
from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor
from ...tensors.operations import elementwise as _elementwise  # noqa: F401 (registers functions)
from ...tensors.operations.activation import celu as celu
from ...tensors.operations.activation import elu as elu
from ...tensors.operations.activation import gelu as gelu
from ...tensors.operations.activation import leaky_relu as leaky_relu
from ...tensors.operations.activation import log_softmax as log_softmax
from ...tensors.operations.activation import logsigmoid as logsigmoid
from ...tensors.operations.activation import softmax as softmax
from ...tensors.operations.activation import softplus as softplus
from ...tensors.operations.indexing import where
from ...tensors.operations.operands import dim_of
from ...tensors.operations.random import rand

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "swiglu", "tanh", "tanhshrink", "threshold",
]  # fmt: skip
relu, sigmoid, tanh = FUNCTIONS["relu"], FUNCTIONS["sigmoid"], FUNCTIONS["tanh"]
silu, mish, selu, softsign = FUNCTIONS["silu"], FUNCTIONS["mish"], FUNCTIONS["selu"], FUNCTIONS["softsign"]
hardsigmoid, hardswish = FUNCTIONS["hardsigmoid"], FUNCTIONS["hardswish"]


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x between two bounds."""
    if input.dtype.kind != "float":
        min_val, max_val = int(min_val), int(max_val)
    return input.clamp(min_val, max_val)


def relu6(input: Tensor) -> Tensor:
    """x between 0 and 6."""
    return input.clamp(0, 6)


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x above the threshold, and `value` elsewhere."""
    return where(input <= threshold, value, input)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x, and 0 from -lambd to lambd."""
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd."""
    moved = where(input > lambd, input - lambd, input + lambd)
    return where((input >= -lambd) & (input <= lambd), 0.0, moved)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - input.tanh()


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x, and below 0 x times the weight of its channel (dim 1), or times the only weight."""
    if weight.numel() > 1:
        if input.ndim < 2 or input.shape[1] != weight.numel():
            why = f"prelu of {counted(weight.numel(), 'weight')} for a tensor of shape {list(input.shape)}"
            raise UsageError("E-TENSOR-SHAPE", None, why, expected="one weight, or one for each channel of dim 1")
        weight = weight.reshape([-1] + [1] * (input.ndim - 2))
    elif not input.ndim:
        weight = weight.reshape(())
    return Tensor(apply(op_named("PRelu"), [input.expression, weight.expression]))


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """leaky_relu with random slopes in training, and their mean otherwise."""
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = rand(input.shape, dtype=input.dtype) * (upper - lower) + lower
    return where(input < 0, input * slopes, input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dim times the sigmoid of the second half."""
    axis = dim_of(dim, input.ndim)
    if input.shape[axis] % 2:
        raise UsageError("E-TENSOR-SHAPE", None, f"glu halves dim {dim} of length {input.shape[axis]}")
    one, two = input.chunk(2, axis)
    return one * two.sigmoid()


def swiglu(input: Tensor, dim: int = -1) -> Tensor:
    """silu of the first half of a dim times the second half, as candle's `swiglu`."""
    one, two = input.chunk(2, dim_of(dim, input.ndim))
    return silu(one) * two


def softmin(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax(-x)."""
    return softmax(-input, dim, dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, dim: int = -1) -> Tensor:
    """A sample of classes: softmax of the logits with Gumbel noise at temperature `tau`; `hard` makes it one-hot, with
    the gradient of the soft one."""
    noise = -((-(rand(logits.shape, dtype=logits.dtype).clamp(min=1e-20)).log()).log())
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    places = soft.argmax(dim, True)
    one = (soft * 0).detach().scatter(dim_of(dim, soft.ndim), places, 1.0)
    return one - soft.detach() + soft
