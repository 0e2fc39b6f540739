"""Operators as functions of NumPy arrays, for scripts and custom operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.ir import registry

if TYPE_CHECKING:
    import numpy as np


def _apply(name: str, x: Any, **attributes: Any) -> np.ndarray:
    import numpy

    operator = registry.operator(name)
    assert operator is not None
    assert operator.compute is not None
    result: np.ndarray = operator.compute(numpy.asarray(x), **attributes)
    return result


def sigmoid(x: Any) -> np.ndarray:
    """1 / (1 + exp(-x)), element by element."""
    return _apply("Sigmoid", x)


def relu(x: Any) -> np.ndarray:
    """max(x, 0), element by element."""
    return _apply("Relu", x)


def gelu(x: Any, *, approximate: str = "none") -> np.ndarray:
    """x times the normal distribution function of x; `approximate` ``tanh`` takes that approximation of it."""
    return _apply("Gelu", x, approximate=approximate)


def silu(x: Any) -> np.ndarray:
    """x * sigmoid(x), element by element."""
    import numpy

    array = numpy.asarray(x)
    product: np.ndarray = array * sigmoid(array)
    return product


def erf(x: Any) -> np.ndarray:
    """The error function, element by element."""
    return _apply("Erf", x)


def softmax(x: Any, *, axis: int = -1) -> np.ndarray:
    """exp(x) over its sum along an axis."""
    return _apply("Softmax", x, axis=axis)
