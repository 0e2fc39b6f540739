"""Arithmetic and comparison of two tensors, with broadcasting and type promotion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL, F32, I64
from ..core.expression import Expression, apply, cast, constant, not_complex, op_named
from ..core.promotion import as_float, category
from ..core.registry import in_place, method, operation
from ..core.tensor import Tensor
from .operands import NUMBERS, apply_in, broadcast, common_dtype, expression_of, memoized, promoted, scalar

Binary = Callable[[Any, Any], Tensor]
OF_BOOLEANS = {"Add": "Or", "Mul": "And", "Max": "Or", "Min": "And"}
"""Operators in place of those that do not take booleans."""
OPERATORS = {
    "add": ("Add", "a + b."),
    "mul": ("Mul", "a * b."),
    "sub": ("Sub", "a - b."),
    "maximum": ("Max", "The larger of two elements; NaN if one is."),
    "minimum": ("Min", "The smaller of two elements; NaN if one is."),
}
COMPARISONS = {
    "eq": ("Equal", "Whether elements are equal."),
    "lt": ("Less", "Whether elements of a are smaller."),
    "le": ("LessOrEqual", "Whether elements of a are not larger."),
    "gt": ("Greater", "Whether elements of a are larger."),
    "ge": ("GreaterOrEqual", "Whether elements of a are not smaller."),
}
LOGIC = {
    "logical_and": ("And", "Where both are not 0."),
    "logical_or": ("Or", "Where one is not 0."),
    "logical_xor": ("Xor", "Where exactly one is not 0."),
}
BITWISE = {"and": "And", "or": "Or", "xor": "Xor"}


def apply_promoted(op: str, a: Expression, b: Expression) -> Expression:
    """An operator on two expressions of one dtype."""
    if a.type.dtype is BOOL and op in OF_BOOLEANS:
        op = OF_BOOLEANS[op]
    if a.type.shape != b.type.shape:
        broadcast((a.type.shape, b.type.shape), op.lower())
    return apply_in(op_named(op), [a, b])


def _arithmetic(op: str, a: Any, b: Any) -> Expression:
    one, other = promoted([a, b])
    if op == "Sub" and (one.type.dtype is BOOL or any(_is_boolean(item) for item in (a, b))):
        why = "subtraction of booleans is not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Use logical_xor(), or convert them with to(dtype)")
    return apply_promoted(op, one, other)


def _is_boolean(item: Any) -> bool:
    return isinstance(item, bool) or (isinstance(item, Tensor) and item.dtype is BOOL)


def _comparison(op: str, a: Any, b: Any) -> Expression:
    one, other = promoted([a, b])
    if one.type.dtype.kind == "complex" and op != "Equal":
        raise not_complex(op, repr(one.type))
    if one.type.dtype is BOOL and op != "Equal":
        one, other = cast(one, I64), cast(other, I64)
    return apply_promoted(op, one, other)


def _logic(op: str, a: Any, b: Any) -> Expression:
    return apply_promoted(op, cast(_one(a), BOOL), cast(_one(b), BOOL))


def _one(item: Any) -> Expression:
    return promoted([item])[0]


def defined(name: str, document: str, compute: Binary, *names: str, reflected: str = "", inplace: str = "") -> Binary:
    """Register an operation of two operands, the second of which may have a factor, `alpha`."""

    once = memoized(compute)

    def made(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
        if alpha != 1:
            one, two = promoted([input, other])
            return compute(Tensor(one), Tensor(apply_promoted("Mul", two, scalar(alpha, two.type.dtype))))
        return once(input, other)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = document
    operation(*names)(made)
    words = [f"{word}_" for word in (name, *names) if not word.startswith("__")]
    in_place(made, *words, *([inplace] if inplace else []))
    if reflected:
        method(reflected)(_swapped(made))
    return made


def _swapped(compute: Callable[..., Tensor]) -> Binary:
    def made(self: Tensor, other: Any) -> Tensor:
        return compute(other, self)

    return made


def _formula(compute: Callable[[str, Any, Any], Expression], op: str) -> Binary:
    return lambda a, b: Tensor(compute(op, a, b))


for _table, _compute in ((OPERATORS, _arithmetic), (COMPARISONS, _comparison), (LOGIC, _logic)):
    for _name, (_op, _document) in _table.items():
        _symbol = _name in ("add", "mul", "sub")
        _dunders = (f"__{_name}__",) if _symbol or _table is COMPARISONS else ()
        defined(
            _name,
            _document,
            _formula(_compute, _op),
            *_dunders,
            reflected=f"__r{_name}__" if _symbol else "",
            inplace=f"__i{_name}__" if _symbol else "",
        )


@operation("__ne__", "not_equal")
def ne(input: Any, other: Any) -> Tensor:
    """Whether elements differ."""
    return Tensor(apply(op_named("Not"), [_comparison("Equal", input, other)]))


def _divided(a: Any, b: Any) -> Expression:
    """The quotient as floats."""
    found = [item if isinstance(item, NUMBERS) else expression_of(item) for item in (a, b)]
    dtype = as_float(common_dtype(found))
    one, other = (cast(item, dtype) if isinstance(item, Expression) else scalar(item, dtype) for item in found)
    return apply_promoted("Div", one, other)


def _floor_divided(a: Any, b: Any) -> Expression:
    """The quotient rounded down, from the remainder; floats by zero are infinite or NaN."""
    one, other = promoted([a, b])
    dtype = one.type.dtype
    if category(dtype) < 2:
        _require_no_zero(other)
        return apply_promoted("Div", apply_promoted("Sub", one, _remainder(one, other)), other)
    one, other = (cast(item, F32) if dtype.bits < 32 else item for item in (one, other))
    broadcast((one.type.shape, other.type.shape), "floor_divide")
    rest = apply(op_named("Mod"), [one, other], {"fmod": 1})
    exact = apply(op_named("Round"), [apply_promoted("Div", apply_promoted("Sub", one, rest), other)])
    zero, quotient = scalar(0, other.type.dtype), apply_promoted("Div", one, other)
    below = apply_promoted(
        "And", _differs(rest, zero), _differs(apply_promoted("Less", rest, zero), apply_promoted("Less", other, zero))
    )
    found = apply_promoted("Sub", exact, cast(below, one.type.dtype))
    found = apply(op_named("Where"), [_differs(found, zero), found, apply_promoted("Mul", quotient, zero)])
    found = apply(op_named("Where"), [apply_promoted("Equal", other, zero), quotient, found])
    return cast(found, dtype)


def _differs(one: Expression, other: Expression) -> Expression:
    return apply(op_named("Not"), [apply_promoted("Equal", one, other)])


def _remainder(one: Expression, other: Expression) -> Expression:
    broadcast((one.type.shape, other.type.shape), "remainder")
    _require_no_zero(other)
    return apply_in(op_named("Mod"), [one, other])


def _require_no_zero(divisor: Expression) -> None:
    """Raise UsageError for integers whose elements are known and of which one is zero."""
    if category(divisor.type.dtype) < 2 and divisor.data is not None and not np.all(divisor.data):
        why = f"ZeroDivisionError: integers are divided by a zero in {divisor.type}"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Convert them to floats with float()")


def _power(a: Any, b: Any) -> Expression:
    if isinstance(b, NUMBERS) and not isinstance(a, NUMBERS):
        x = expression_of(a)
        base, _ = promoted([Tensor(x), b])
        if b == 2:
            return apply_promoted("Mul", base, base)
        if category(base.type.dtype) < 2 and not isinstance(b, complex | np.complexfloating) and b < 0:
            raise _negative_power()
        exponent = constant(b, base.type.dtype.as_numpy())
    else:
        base, exponent = promoted([a, b])
    if base.type.dtype is BOOL:
        base, exponent = cast(base, I64), cast(exponent, I64)
    broadcast((base.type.shape, exponent.type.shape), "pow")
    if exponent.type.dtype.kind == "int" and exponent.type.array is None:
        return _integer_power(Tensor(base), Tensor(exponent))
    return apply_in(op_named("Pow"), [base, exponent])


def _integer_power(base: Tensor, exponent: Tensor) -> Expression:
    """The power of integers: to a negative one that of 1 and -1, and 0 of others, as the quotient without its
    fraction."""
    is_negative = (exponent < 0).expression
    where = functools.partial(apply, op_named("Where"))
    taken = where([is_negative, (exponent & 1).expression, exponent.expression])
    found = apply_in(op_named("Pow"), [base.expression, taken])
    kept = (base * base).eq(1).expression
    return where([is_negative, where([kept, found, scalar(0, found.type.dtype)]), found])


def _negative_power() -> UsageError:
    why = "integers to negative integer powers are not allowed"
    return UsageError("E-TENSOR-VALUE", None, why, hint="Convert them to floats with float()")


defined(
    "true_divide", "a / b as floats.", lambda a, b: Tensor(_divided(a, b)), "__truediv__", "divide",
    reflected="__rtruediv__", inplace="__itruediv__",
)  # fmt: skip
defined(
    "floor_divide", "The quotient rounded down.", lambda a, b: Tensor(_floor_divided(a, b)), "__floordiv__",
    reflected="__rfloordiv__", inplace="__ifloordiv__",
)  # fmt: skip
defined(
    "remainder", "The rest of a / b, with the sign of b.", lambda a, b: Tensor(_remainder(*promoted([a, b]))),
    "__mod__", reflected="__rmod__", inplace="__imod__",
)  # fmt: skip
defined(
    "pow", "a to the power of b.", lambda a, b: Tensor(_power(a, b)), "__pow__", reflected="__rpow__",
    inplace="__ipow__",
)  # fmt: skip


@operation()
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """a / b; `rounding_mode` is "trunc", "floor", or None for floats."""
    if rounding_mode == "floor":
        return Tensor(_floor_divided(input, other))
    if rounding_mode is None:
        return Tensor(_divided(input, other))
    one, other = promoted([input, other])
    _require_no_zero(other)
    tensor = Tensor(apply_promoted("Div", one, other))
    return tensor.trunc() if category(one.type.dtype) >= 2 else tensor


in_place(div, "div_")


@operation()
def fmod(input: Any, other: Any) -> Tensor:
    """The rest of a / b, with the sign of a."""
    one, other = promoted([input, other])
    _require_no_zero(other)
    return Tensor(apply_in(op_named("Mod"), [one, other], {"fmod": 1}))


def _bitwise(name: str, operator: str) -> Binary:
    def compute(a: Any, b: Any) -> Tensor:
        one, other = promoted([a, b])
        return Tensor(apply_promoted(operator if one.type.dtype is BOOL else f"Bitwise{operator}", one, other))

    return defined(
        f"bitwise_{name}", f"{operator} of bits.", compute, f"__{name}__", reflected=f"__r{name}__",
        inplace=f"__i{name}__",
    )  # fmt: skip


for _name, _op in BITWISE.items():
    _bitwise(_name, _op)


@operation("__invert__")
def bitwise_not(input: Any) -> Tensor:
    """Not of bits."""
    x = expression_of(input)
    return Tensor(apply_in(op_named("Not" if x.type.dtype is BOOL else "BitwiseNot"), [x]))
