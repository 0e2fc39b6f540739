"""Element-wise operations that several operators make up, written with other operations."""

from __future__ import annotations

import math
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL, C128, F32, F64
from ..core.expression import cast, op_named
from ..core.promotion import as_float, category
from ..core.registry import FUNCTIONS, in_place, operation
from ..core.tensor import Tensor
from .indexing import where
from .operands import apply_in, default_float, expression_of, promoted, real_float, require_real, scalar


def _as_tensor(item: Any) -> Tensor:
    return item if isinstance(item, Tensor) else Tensor(expression_of(item))


def _floats(item: Any) -> Tensor:
    return Tensor(default_float(expression_of(item)))


def _wide(item: Any) -> Tensor:
    """In at least f32, for formulas that lose digits."""
    x = _floats(item)
    return Tensor(cast(x.expression, F32)) if x.dtype.bits < 32 else x


def _double(x: Tensor) -> Tensor:
    """In f64, or c128."""
    return Tensor(cast(x.expression, C128 if x.dtype.is_complex else F64))


def _back(x: Tensor, like: Any) -> Tensor:
    """In the float dtype of the input."""
    return Tensor(cast(x.expression, as_float(_as_tensor(like).dtype)))


@operation()
def square(input: Any) -> Tensor:
    """x * x."""
    x = _as_tensor(input)
    return x.long() if x.dtype is BOOL else x * x


@operation()
def rsqrt(input: Any) -> Tensor:
    """1 / sqrt(x)."""
    return _back(_wide(input).sqrt().reciprocal(), input)


@operation("fix")
def trunc(input: Any) -> Tensor:
    """The integer part of each element."""
    x = _as_tensor(input)
    return Tensor(x.expression) if category(x.dtype) < 2 else where(x < 0, x.ceil(), x.floor())


@operation()
def frac(input: Any) -> Tensor:
    """The fractional part of each element."""
    x = _as_tensor(input)
    return x - trunc(x)


@operation()
def log1p(input: Any) -> Tensor:
    """log(1 + x), exact for small x."""
    x = _wide(input)
    return _back(where(x.abs() < 0.5, 2 * (x / (2 + x)).atanh(), (1 + x).log()), input)


@operation()
def expm1(input: Any) -> Tensor:
    """exp(x) - 1, exact for small x."""
    x = _wide(input)
    half = x / 2
    return _back(where(x.abs() < 1, 2 * half.sinh() * half.exp(), x.exp() - 1), input)


def _logarithm(name: str, base: float) -> None:
    def made(input: Any) -> Tensor:
        x = _floats(input)
        return _back(_double(x).log() / math.log(base), input)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"Logarithm to the base {base}."
    operation()(made)
    in_place(made, f"{name}_")


_logarithm("log2", 2)
_logarithm("log10", 10)


@operation()
def exp2(input: Any) -> Tensor:
    """2 to the power of each element."""
    return _back((_double(_floats(input)) * math.log(2)).exp(), input)


@operation()
def erfc(input: Any) -> Tensor:
    """1 - erf(x)."""
    return _back(1 - Tensor(cast(real_float(input, "erfc").expression, F64)).erf(), input)


@operation()
def deg2rad(input: Any) -> Tensor:
    """Degrees as radians."""
    return _back(_wide(input) * (math.pi / 180), input)


@operation()
def rad2deg(input: Any) -> Tensor:
    """Radians as degrees."""
    return _back(_wide(input) * (180 / math.pi), input)


@operation("__pos__")
def positive(input: Any) -> Tensor:
    """x."""
    x = _as_tensor(input)
    if x.dtype is BOOL:
        raise UsageError("E-TENSOR-DTYPE", None, "positive of booleans is not defined", hint="Convert them first")
    return Tensor(x.expression)


def _test_of_floats(name: str, op: str, document: str) -> None:
    def made(input: Any) -> Tensor:
        x = expression_of(input)
        if category(x.type.dtype) < 2:
            return Tensor(x) != Tensor(x)
        return Tensor(apply_in(op_named(op), [x], back=False))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation()(made)


_test_of_floats("isnan", "IsNaN", "Whether elements are not a number.")
_test_of_floats("isinf", "IsInf", "Whether elements are infinite.")


@operation()
def isfinite(input: Tensor) -> Tensor:
    """Whether elements are neither infinite nor NaN."""
    return (input.isnan() | input.isinf()).logical_not()


@operation()
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input), from -pi to pi."""
    one, two = (Tensor(default_float(item)) for item in promoted([input, other]))
    y, x = _wide(one), _wide(two)
    both = y.isinf() & x.isinf()
    y, x = where(both, y.sign(), y), where(both, x.sign(), x)
    steep = y.abs() > x.abs()
    is_origin = x.eq(0) & y.eq(0)
    ratio = where(steep, x, where(is_origin, y.detach(), y)) / where(steep, y, where(x.eq(0), 1.0, x))
    turn = where(_negative(y), *(Tensor(scalar(angle, x.dtype)) for angle in (-math.pi, math.pi)))
    flat = where(_negative(x), ratio.atan() + turn, ratio.atan())
    return _back(where(steep, turn / 2 - ratio.atan(), flat), one)


def _negative(x: Tensor) -> Tensor:
    """Whether the sign bit is set, that of zero included."""
    return (x < 0) | (x.eq(0) & (x.reciprocal() < 0))


@operation()
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """sqrt(a * a + b * b), which does not overflow."""
    one, two = (Tensor(item) for item in promoted([input, other]))
    if category(one.dtype) < 2:
        why = f"hypot of {one.dtype} is not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Convert it with float()")
    require_real("hypot", one)
    a, b = _wide(one).abs(), _wide(two).abs()
    large = a.maximum(b)
    scale = where(large.eq(0) | large.isinf(), 1.0, large)
    found = scale * ((a / scale).square() + (b / scale).square()).sqrt()
    return _back(where(a.isinf() | b.isinf(), math.inf, found), one)


@operation("clip")
def clamp(input: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """Elements below `min` raised to it, and those above `max` lowered to it; both are numbers or tensors."""
    if min is None and max is None:
        why = "clamp needs min or max"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Pass one of them")
    found = input if min is None else _bounded(_as_tensor(input), min, "lt")
    return found if max is None else _bounded(_as_tensor(found), max, "gt")


def _bounded(x: Tensor, bound: Any, compare: str) -> Tensor:
    """The bound where elements are beyond it, or where it is NaN."""
    beyond = getattr(x, compare)(bound)
    if isinstance(bound, Tensor):
        beyond = beyond | bound.isnan() if bound.dtype.kind == "float" else beyond
    elif math.isnan(bound):
        beyond = beyond | True
    return where(beyond, *_both(bound, x))


def _both(bound: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    one, two = promoted([bound, x])
    return Tensor(one), Tensor(two)


@operation()
def clamp_min(input: Tensor, min: Tensor | float) -> Tensor:
    """Elements below `min` raised to it."""
    return clamp(input, min)


@operation()
def clamp_max(input: Tensor, max: Tensor | float) -> Tensor:
    """Elements above `max` lowered to it."""
    return clamp(input, None, max)


@operation()
def lerp(input: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """input + weight * (end - input), from the nearer end."""
    step = end - input
    if isinstance(weight, Tensor):
        return where(weight.abs() < 0.5, input + weight * step, end - step * (1 - weight))
    return input + weight * step if abs(weight) < 0.5 else end - step * (1 - weight)


@operation()
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    return input + value * tensor1 * tensor2


@operation()
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value * tensor1 / tensor2."""
    return input + value * (tensor1 / tensor2)


@operation()
def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN and infinities as numbers, by default 0 and the largest ones of the dtype; of complex numbers by parts."""
    if category(input.dtype) < 2:
        return Tensor(input.expression)
    if input.dtype.is_complex:
        parts = [nan_to_num(each, nan, posinf, neginf) for each in (input.real, input.imag)]
        joined: Tensor = FUNCTIONS["complex"](*parts)
        return joined
    largest = _largest(input)
    found = where(input.isnan(), nan, input)
    found = where(input.eq(math.inf), largest if posinf is None else posinf, found)
    return where(input.eq(-math.inf), -largest if neginf is None else neginf, found)


def _largest(x: Tensor) -> float:
    import ml_dtypes

    info = ml_dtypes.finfo(x.dtype.as_numpy())  # type: ignore[no-untyped-call]
    return float(info.max)


@operation()
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(b))."""
    if input.dtype.is_complex:
        is_larger = input.real >= other.real
        large, small = where(is_larger, input, other), where(is_larger, other, input)
        return large + log1p((small - large).exp())
    large = input.maximum(other)
    distance = -(input - other).abs()
    return where(large.isinf(), large, large + log1p(distance.exp()))


@operation()
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether elements are equal within a tolerance."""
    if category(input.dtype) < 2 and category(other.dtype) < 2:
        input, other = input.double(), other.double()
    near = (input - other).abs() <= atol + rtol * other.abs()
    found = input.eq(other) | (near & (input - other).isfinite())
    return found | (input.isnan() & other.isnan()) if equal_nan else found


@operation()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are equal within a tolerance."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@operation()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements."""
    return input.shape == other.shape and bool(input.eq(other).all())


for _made in (
    square,
    rsqrt,
    trunc,
    frac,
    log1p,
    expm1,
    exp2,
    erfc,
    clamp,
    clamp_min,
    clamp_max,
    lerp,
    addcmul,
    addcdiv,
):
    in_place(_made, f"{_made.__name__}_")
