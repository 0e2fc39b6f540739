"""The inverse of the error function, functions that are made of it, and neighbours of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.custom_function import as_function
from ..core.registry import function, operation
from ..core.tensor import Tensor
from ..operations.operands import promoted, real_float

NEWTON_STEPS = 3


def inverse_error_function(y: np.ndarray) -> np.ndarray:
    """The x of which erf is y, f64: Winitzki's approximation (2008), made exact by Halley's steps."""
    with np.errstate(all="ignore"):
        logarithm = np.log1p(-y * y)
        half = 2 / (np.pi * 0.147) + logarithm / 2
        x = np.copysign(np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half), y)
        for _ in range(NEWTON_STEPS):
            error = (_erf(x) - y) / (2 / math.sqrt(math.pi) * np.exp(-x * x))
            x = x - error / (1 + x * error)
        return np.where(np.abs(y) == 1, np.copysign(np.inf, y), np.where(np.abs(y) > 1, np.nan, np.where(y == 0, y, x)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


@as_function
def _erfinv(y: np.ndarray) -> np.ndarray:
    return inverse_error_function(y.astype(np.float64)).astype(y.dtype)


@_erfinv.gradient
@as_function
def _erfinv_gradient(gradient: np.ndarray, y: np.ndarray) -> np.ndarray:
    x = inverse_error_function(y.astype(np.float64))
    return gradient * (math.sqrt(math.pi) / 2 * np.exp(x * x)).astype(y.dtype)


@operation("special_erfinv")
def erfinv(input: Any) -> Tensor:
    """The x of which erf(x) is the element."""
    found: Tensor = _erfinv(real_float(input, "erfinv"))
    return found


@as_function
def _nextafter(x: np.ndarray, towards: np.ndarray) -> np.ndarray:
    return np.nextafter(x, towards)


@_nextafter.gradient
def _nextafter_gradient(gradient: np.ndarray, x: np.ndarray, towards: np.ndarray) -> tuple[np.ndarray, None]:
    return gradient, None


@operation()
def nextafter(input: Any, other: Any) -> Tensor:
    """The next number of the dtype towards another one."""
    one, two = (Tensor(each) for each in promoted([input, other]))
    if one.dtype.kind != "float":
        raise UsageError("E-TENSOR-DTYPE", None, f"nextafter of {one.dtype}", expected="floats")
    found: Tensor = _nextafter(one, two)
    return found


@function("special_ndtri")
def ndtri(input: Any) -> Tensor:
    """The quantile of the standard normal distribution."""
    return erfinv(2 * real_float(input, "ndtri") - 1) * math.sqrt(2)
