"""Signs, steps, and functions of two numbers that are made of others."""

from __future__ import annotations

import math
from typing import Any

from ....runtime.tensor.dtype import BOOL, C128, F64
from ...core.registry import FUNCTIONS, in_place, operation
from ...core.tensor import Tensor
from ..indexing import where
from ..operands import default_float, expression_of, promoted, require_real


def _floats(item: Any) -> Tensor:
    return Tensor(default_float(expression_of(item)))


@operation()
def signbit(input: Tensor) -> Tensor:
    """Whether elements are negative, -0 included."""
    if input.dtype.kind != "float":
        return input.bool() & False if input.dtype is BOOL else input < 0
    return where(input.eq(0), 1 / input, input) < 0


@operation()
def copysign(input: Any, other: Any) -> Tensor:
    """The size of one element with the sign of another."""
    one, two = (Tensor(default_float(each)) for each in promoted([input, other]))
    return where(signbit(two), -one.abs(), one.abs())


@operation()
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below 0 and of NaN, 1 above, and `values` at 0."""
    return where(input.eq(0), values, (input > 0).to(input.dtype))


@operation()
def float_power(input: Tensor | float, exponent: Tensor | float) -> Tensor:
    """a to the power of b, in f64, or c128 if one is complex."""
    kinds = [each.dtype.kind if isinstance(each, Tensor) else type(each).__name__ for each in (input, exponent)]
    wide = C128 if "complex" in kinds else F64
    given = [each.to(wide) if isinstance(each, Tensor) else each for each in (input, exponent)]
    found: Tensor = FUNCTIONS["pow"](*given)
    return found


@operation()
def ldexp(input: Tensor, other: Any) -> Tensor:
    """input * 2 ** other."""
    power: Tensor = FUNCTIONS["pow"](2.0, _floats(other))
    return input * power


@operation()
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** a + 2 ** b)."""
    require_real("logaddexp2", input, other)
    found: Tensor = FUNCTIONS["logaddexp"](input * math.log(2), other * math.log(2)) / math.log(2)
    return found


@operation()
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    x = _floats(input) * math.pi
    return where(x.eq(0), 1.0, x.sin() / where(x.eq(0), 1.0, x))


for _made in (copysign, heaviside, float_power, ldexp, sinc):
    in_place(_made, f"{_made.__name__}_")
