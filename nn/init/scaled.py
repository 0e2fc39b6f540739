"""Initialisers whose spread follows from the shape of the weight (Glorot and Bengio 2010, He et al. 2015)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import Generator
from .distributions import filled, normal_, uniform_

__all__ = [
    "calculate_gain", "kaiming_normal_", "kaiming_uniform_", "orthogonal_", "xavier_normal_", "xavier_uniform_",
]  # fmt: skip
GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """By how much an activation shrinks the deviation; `param` is the slope of leaky_relu."""
    if nonlinearity in LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        known = ", ".join((*LINEAR, *GAINS, "leaky_relu"))
        raise UsageError("E-NN-VALUE", None, f"no gain of {nonlinearity!r} is known", expected=known)
    return GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Inputs of each output of a weight [out, in, ...], and outputs of each input."""
    if tensor.ndim < 2:
        why = f"a weight of shape {list(tensor.shape)} does not have inputs and outputs"
        raise UsageError("E-NN-SHAPE", None, why, expected="two dims at least")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers of variance ``gain ** 2 * 2 / (fan_in + fan_out)``."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(sum(fans(tensor))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers of variance ``gain ** 2 * 2 / (fan_in + fan_out)``."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(fans(tensor)))), generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise UsageError("E-NN-VALUE", None, f"{mode!r} is not a mode", expected="fan_in or fan_out")
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Uniform numbers of variance ``gain ** 2 / fan``; `a` is the slope of leaky_relu."""
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal numbers of variance ``gain ** 2 / fan``; `a` is the slope of leaky_relu."""
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Orthogonal rows, or columns where these are fewer (Saxe et al. 2013)."""
    fans(tensor)
    rows = tensor.shape[0]
    normal_(tensor, 0, 1, generator)
    flat = tensor.array().reshape(rows, -1).astype(np.float64)
    tall = flat.T if rows < flat.shape[1] else flat
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return filled(tensor, gain * (q.T if rows < flat.shape[1] else q).reshape(tensor.shape))
