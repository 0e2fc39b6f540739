"""Signs, steps, and functions of two numbers that are made of others."""

from __future__ import annotations

import math
from typing import Any

from ....runtime.tensor.dtype import BOOL, F64
from ...core.lazy_tensor import LazyTensor
from ...core.registry import FUNCTIONS, in_place, operation
from ..indexing import where
from ..operands import default_float, expression_of, promoted


def _floats(item: Any) -> LazyTensor:
    return LazyTensor(default_float(expression_of(item)))


@operation()
def signbit(input: LazyTensor) -> LazyTensor:
    """Whether elements are negative, -0 included."""
    if input.dtype.kind != "float":
        return input.bool() & False if input.dtype is BOOL else input < 0
    return where(input.eq(0), 1 / input, input) < 0


@operation()
def copysign(input: Any, other: Any) -> LazyTensor:
    """The size of one element with the sign of another."""
    one, two = (LazyTensor(default_float(each)) for each in promoted([input, other]))
    return where(signbit(two), -one.abs(), one.abs())


@operation()
def heaviside(input: LazyTensor, values: LazyTensor) -> LazyTensor:
    """0 below 0 and of NaN, 1 above, and `values` at 0."""
    return where(input.eq(0), values, (input > 0).to(input.dtype))


@operation()
def float_power(input: LazyTensor | float, exponent: LazyTensor | float) -> LazyTensor:
    """a to the power of b, in f64."""
    given = [each.to(F64) if isinstance(each, LazyTensor) else each for each in (input, exponent)]
    found: LazyTensor = FUNCTIONS["pow"](*given)
    return found


@operation()
def ldexp(input: LazyTensor, other: Any) -> LazyTensor:
    """input * 2 ** other."""
    power: LazyTensor = FUNCTIONS["pow"](2.0, _floats(other))
    return input * power


@operation()
def logaddexp2(input: LazyTensor, other: LazyTensor) -> LazyTensor:
    """log2(2 ** a + 2 ** b)."""
    found: LazyTensor = FUNCTIONS["logaddexp"](input * math.log(2), other * math.log(2)) / math.log(2)
    return found


@operation()
def sinc(input: LazyTensor) -> LazyTensor:
    """sin(pi x) / (pi x), 1 at 0."""
    x = _floats(input) * math.pi
    return where(x.eq(0), 1.0, x.sin() / where(x.eq(0), 1.0, x))


for _made in (copysign, heaviside, float_power, ldexp, sinc):
    in_place(_made, f"{_made.__name__}_")
