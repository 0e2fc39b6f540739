"""Element-wise operations of one tensor that are one operator each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL
from ..core.expression import Expression, apply, cast, op_named
from ..core.promotion import category
from ..core.registry import in_place, operation
from ..core.tensor import Tensor
from .operands import apply_in, default_float, expression_of, scalar

FLOATS = {
    "exp": ("Exp", "e to the power of each element."),
    "log": ("Log", "Natural logarithm."),
    "sqrt": ("Sqrt", "Square root."),
    "reciprocal": ("Reciprocal", "1 / x."),
    "sin": ("Sin", "Sine."),
    "cos": ("Cos", "Cosine."),
    "tan": ("Tan", "Tangent."),
    "asin": ("Asin", "Inverse sine.", "arcsin"),
    "acos": ("Acos", "Inverse cosine.", "arccos"),
    "atan": ("Atan", "Inverse tangent.", "arctan"),
    "sinh": ("Sinh", "Hyperbolic sine."),
    "cosh": ("Cosh", "Hyperbolic cosine."),
    "tanh": ("Tanh", "Hyperbolic tangent."),
    "asinh": ("Asinh", "Inverse hyperbolic sine.", "arcsinh"),
    "acosh": ("Acosh", "Inverse hyperbolic cosine.", "arccosh"),
    "atanh": ("Atanh", "Inverse hyperbolic tangent.", "arctanh"),
    "sigmoid": ("Sigmoid", "1 / (1 + exp(-x)).", "expit"),
    "erf": ("Erf", "The error function."),
}
"""Operations that make floats of integers: operator, description, other names."""
ROUNDING = {
    "floor": ("Floor", "The largest integer that is not above each element."),
    "ceil": ("Ceil", "The smallest integer that is not below each element."),
}
"""Operations that leave integers as they are."""
SIGNED = {
    "neg": ("Neg", "-x.", "negative", "__neg__"),
    "abs": ("Abs", "The absolute value.", "absolute", "__abs__"),
    "sign": ("Sign", "-1, 0 or 1, as the sign of each element; 0 for NaN.", "sgn"),
    "relu": ("Relu", "max(x, 0)."),
}
"""Operations of floats and integers alike."""


def _floats(op: str, x: Expression) -> Expression:
    return apply_in(op_named(op), [default_float(x)])


def _rounding(op: str, x: Expression) -> Expression:
    return x if category(x.type.dtype) < 2 else apply_in(op_named(op), [x])


def _signed(op: str, x: Expression) -> Expression:
    if x.type.dtype is not BOOL:
        found = apply_in(op_named(op), [x])
        if op != "Sign" or not x.type.differentiable:
            return found
        is_nan = apply_in(op_named("IsNaN"), [x], back=False)
        return apply(op_named("Where"), [is_nan, scalar(0, x.type.dtype), found])
    if op == "Sign":
        return x
    what = f"{op} of booleans is not defined"
    raise UsageError("E-TENSOR-DTYPE", None, what, hint="Use logical_not(), or convert it with to(dtype)")


def _negated(op: str, x: Expression) -> Expression:
    return apply_in(op_named(op), [cast(x, BOOL)])


def _define(
    name: str, op: str, document: str, compute: Callable[[str, Expression], Expression], names: tuple[str, ...]
) -> None:
    def made(input: Any) -> Tensor:
        return Tensor(compute(op, expression_of(input)))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation(*names)(made)
    in_place(made, *(f"{word}_" for word in (name, *names) if not word.startswith("__")))


for _table, _compute in (
    (FLOATS, _floats),
    (ROUNDING, _rounding),
    (SIGNED, _signed),
    ({"logical_not": ("Not", "Where elements are 0.")}, _negated),
):
    for _name, (_op, _document, *_names) in _table.items():
        _define(_name, _op, _document, _compute, tuple(_names))
