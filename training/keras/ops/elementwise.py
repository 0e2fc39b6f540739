"""Elementwise functions by Keras' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....tensors.core.tensor import Tensor
from ....tensors.operations.indexing import where as _where
from ..core import activations
from .operation import as_floats, named_functions, operation, ours, tensor_of

OF_FLOATS = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh",
    **{name: name for name in (
        "cos", "cosh", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2",
        "reciprocal", "rsqrt", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "deg2rad", "rad2deg",
    )},
}  # fmt: skip
"""Functions whose results are floats: our names by Keras'."""
OF_ANY = {
    "abs": "abs", "absolute": "abs", "bitwise_invert": "bitwise_not", "bitwise_not": "bitwise_not", "ceil": "ceil",
    "conj": "conj", "conjugate": "conj", "floor": "floor", "imag": "imag", "isfinite": "isfinite", "isinf": "isinf",
    "isnan": "isnan", "logical_not": "logical_not", "negative": "neg", "real": "real", "sign": "sign",
    "signbit": "signbit", "square": "square", "trunc": "trunc",
}  # fmt: skip
OF_TWO = {
    "add": "add", "arctan2": "atan2", "bitwise_and": "bitwise_and", "bitwise_left_shift": "bitwise_left_shift",
    "bitwise_or": "bitwise_or", "bitwise_right_shift": "bitwise_right_shift", "bitwise_xor": "bitwise_xor",
    "divide": "div", "equal": "eq", "floor_divide": "floor_divide", "greater": "gt", "greater_equal": "ge",
    "hypot": "hypot", "less": "lt", "less_equal": "le", "logaddexp": "logaddexp", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "maximum": "maximum", "minimum": "minimum",
    "mod": "remainder", "multiply": "mul", "not_equal": "ne", "power": "pow", "subtract": "sub",
    "true_divide": "div",
}  # fmt: skip
ACTIVATIONS = (
    "celu", "elu", "hard_sigmoid", "hard_silu", "hard_swish", "leaky_relu", "log_softmax", "relu", "relu6",
    "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "swish",
)  # fmt: skip
__all__ = [
    *OF_FLOATS, *OF_ANY, *OF_TWO, *ACTIVATIONS, "cast", "clip", "divide_no_nan", "gelu", "isclose", "log_sigmoid",
    "nan_to_num", "round", "saturate_cast", "stop_gradient", "where",
]  # fmt: skip


def _of_floats(name: str) -> Callable[..., Any]:
    return lambda x: ours(OF_FLOATS[name])(as_floats(x))


def _of_any(name: str) -> Callable[..., Any]:
    return lambda x: ours(OF_ANY[name])(tensor_of(x))


def _pair(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two operands; Python numbers stay numbers, which take the dtype of the other one."""
    one = x1 if isinstance(x1, int | float) else tensor_of(x1)
    other = x2 if isinstance(x2, int | float) else tensor_of(x2)
    return (tensor_of(one) if not isinstance(other, Tensor) else one), other


def _of_two(name: str) -> Callable[..., Any]:
    def applied(x1: Any, x2: Any) -> Any:
        one, other = _pair(x1, x2)
        if not isinstance(one, Tensor):
            kind = "f32" if isinstance(one, float) and other.dtype.kind != "float" else other.dtype
            one = tensor_of(one).to(kind)
        return ours(OF_TWO[name])(one, tensor_of(other).to(one.dtype) if _is_weak(other, one) else other)

    return applied


def _is_weak(number: Any, tensor: Tensor) -> bool:
    """Whether a Python number takes the dtype of a tensor."""
    return isinstance(number, int) and not isinstance(number, bool) and tensor.dtype.kind != "bool"


def _activation(name: str) -> Callable[..., Any]:
    function = getattr(activations, name)
    return lambda x, *arguments, **options: function(as_floats(x), *arguments, **options)


globals().update(named_functions(OF_FLOATS, _of_floats) | named_functions(OF_ANY, _of_any))
globals().update(named_functions(OF_TWO, _of_two) | named_functions(ACTIVATIONS, _activation))


@operation
def gelu(x: Any, approximate: bool = True) -> Tensor:
    """x times the normal distribution's share below x, by default as tanh approximates it."""
    return activations.gelu(as_floats(x), approximate)


@operation
def log_sigmoid(x: Any) -> Tensor:
    """The logarithm of the sigmoid."""
    return -activations.softplus(-as_floats(x))


@operation
def divide_no_nan(x1: Any, x2: Any) -> Tensor:
    """x1 / x2, and 0 where x2 is 0."""
    one, other = as_floats(x1), as_floats(x2)
    is_zero = other == 0
    return _where(is_zero, 0.0, one / _where(is_zero, 1.0, other))


@operation
def clip(x: Any, x_min: Any, x_max: Any) -> Tensor:
    """Elements of at least `x_min` and at most `x_max`."""
    return tensor_of(x).clamp(x_min, x_max)


@operation
def round(x: Any, decimals: int = 0) -> Tensor:
    """The nearest numbers of some decimals, the even one of two."""
    return ours("round")(tensor_of(x), decimals=decimals)


@operation
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition is true, and x2 elsewhere; without both, indices as of `nonzero`."""
    chosen = tensor_of(condition).bool()
    if x1 is None:
        return ours("nonzero")(chosen, as_tuple=True)
    one, other = _pair(x1, x2)
    return _where(chosen, one, other)


@operation
def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in place of NaN and infinities."""
    return ours("nan_to_num")(tensor_of(x), nan, posinf, neginf)


@operation
def isclose(x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether elements are nearly equal."""
    return ours("isclose")(tensor_of(x1), tensor_of(x2), rtol, atol, equal_nan)


@operation
def cast(x: Any, dtype: Any) -> Tensor:
    """The elements in another dtype."""
    return tensor_of(x).to(dtype)


@operation
def saturate_cast(x: Any, dtype: Any) -> Tensor:
    """The elements in another dtype, whose largest and smallest numbers stand for those beyond them."""
    wanted = tensor_of(0).to(dtype).dtype
    limits = (np.finfo if wanted.kind == "float" else np.iinfo)(wanted.as_numpy())
    return tensor_of(x).clamp(float(limits.min), float(limits.max)).to(dtype)


@operation
def stop_gradient(variable: Any) -> Tensor:
    """The values, through which no gradient flows."""
    return tensor_of(variable).detach()
