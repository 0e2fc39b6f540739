"""Operators as functions of NumPy arrays and lazy tensors, for scripts and custom operators."""

from __future__ import annotations

from typing import Any

from ...runtime.ir import registry


def _apply(name: str, x: Any, **attributes: Any) -> Any:
    import numpy

    if _is_lazy(x):
        from ...tensors.namespace import PUBLIC

        return PUBLIC[name.lower()](x, *attributes.values())
    operator = registry.operator(name)
    assert operator is not None
    assert operator.compute is not None
    return operator.compute(numpy.asarray(x), **attributes)


def _is_lazy(x: Any) -> bool:
    """Whether it is a tensor of `tensors`, which numbers and arrays do not load."""
    return type(x).__name__ == "LazyTensor"


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), element by element."""
    return _apply("Sigmoid", x)


def relu(x: Any) -> Any:
    """max(x, 0), element by element."""
    return _apply("Relu", x)


def gelu(x: Any, *, approximate: str = "none") -> Any:
    """x times the normal distribution function of x; `approximate` ``tanh`` takes that approximation of it."""
    return _apply("Gelu", x, approximate=approximate)


def silu(x: Any) -> Any:
    """x * sigmoid(x), element by element."""
    import numpy

    array = x if _is_lazy(x) else numpy.asarray(x)
    return array * sigmoid(array)


def erf(x: Any) -> Any:
    """The error function, element by element."""
    return _apply("Erf", x)


def softmax(x: Any, dim: int | None = None, *, axis: int = -1) -> Any:
    """exp(x) over its sum along an axis, which is also called `dim`."""
    return _apply("Softmax", x, axis=axis if dim is None else dim)
