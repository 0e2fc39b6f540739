"""Arithmetic of two tensors: Add, Sub, Mul, Div, Mod, Pow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case
from ...runtime.ir.symbolic_dim import subtract_dims, sum_dims
from .declare import binary, broadcast_to_one, elementwise, followed

INTEGERS = np.array([-7, 7, -1, 0], np.int32)


def _sum_of(row: Sequence[Dim]) -> Dim:
    first, second = row
    if isinstance(first, int) and first < 0:
        return subtract_dims(second, -first)
    return subtract_dims(first, -second) if isinstance(second, int) and second < 0 else sum_dims(row)


def _difference_of(row: Sequence[Dim]) -> Dim:
    first, second = row
    return _sum_of((first, -second)) if isinstance(second, int) else subtract_dims(first, second)


def _product_of(row: Sequence[Dim]) -> Dim:
    first, second = row
    return 0 if 0 in row else first if second == 1 else second if first == 1 else None


def _quotient_of(row: Sequence[Dim]) -> Dim:
    first, second = row
    return first if second == 1 else None


@binary(
    "Add",
    14,
    case("f32[2,3]", "f32[3]"),
    case("i64[2,1]", "i64[1,3]"),
    case("f32[0,3]", "f32[1]"),
    case("u8[3]", "u8[3]"),
    types="T=number T",
    traits=(Trait.COMMUTATIVE, Trait.FINITE_AT_ZERO),
    scalar=lambda a, b: a + b,
    infer=followed(broadcast_to_one, lambda a, b: a + b, _sum_of),
)
def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b."""
    return np.add(a, b)


@binary(
    "Sub",
    14,
    case("f32[2,3]", "f32[3]"),
    case("i64[2,1]", "i64[1,3]"),
    case("u8[3]", "u8[3]"),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=lambda a, b: a - b,
    infer=followed(broadcast_to_one, lambda a, b: a - b, _difference_of),
)
def sub(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b."""
    return np.subtract(a, b)


@binary(
    "Mul",
    14,
    case("f32[2,3]", "f32[3]"),
    case("i64[2,1]", "i64[1,3]"),
    case("f32[2,0]", "f32[1]"),
    case("i8[3]", "i8[3]"),
    types="T=number T",
    traits=(Trait.COMMUTATIVE, Trait.FINITE_AT_ZERO),
    scalar=lambda a, b: a * b,
    infer=followed(broadcast_to_one, lambda a, b: a * b, _product_of),
)
def mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * b."""
    return np.multiply(a, b)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@binary(
    "Div",
    14,
    case("f32[2,3]", "f32[3]"),
    case(INTEGERS, np.array([2, -2, 3, 5], np.int32)),
    case("u8[2,1]", np.array([3, 7], np.uint8)),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    scalar=lambda a, b: a / b,
    infer=followed(broadcast_to_one, _truncated, _quotient_of),
)
def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; integers are rounded toward zero, and their quotient by zero is zero."""
    if a.dtype.kind not in "iu":
        return np.true_divide(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient < 0) & (quotient * b != a) & (b != 0))
    return quotient.astype(a.dtype, copy=False)


def _mod(a: float, b: float, fmod: int) -> float:
    rest = math.copysign(abs(a) % abs(b), a)
    if fmod:
        return rest
    if rest == 0:
        return math.copysign(rest, b)
    return rest + b if (rest < 0) != (b < 0) else rest


@elementwise(
    "Mod",
    28,
    case("i64[2,5]", np.array([3, -3, 7, -7, 1])),
    case("f32[2,3]", "f32[3]", fmod=1),
    case("u8[4]", np.array([3, 5, 7, 9], np.uint8)),
    case("i32[0]", "i32[1]"),
    case("f32[2,3]", "f32[3]"),
    case("i32[3]", np.array([-3, 5, -7], np.int32), fmod=1),
    types="T=number T",
    scalar=_mod,
    infer=followed(broadcast_to_one, lambda a, b: a % b),
)
def mod(a: np.ndarray, b: np.ndarray, *, fmod: int = 0) -> np.ndarray:
    """The rest of a / b with the sign of `b`, or with that of `a` for `fmod`; of integers by zero it is zero."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


@binary(
    "Pow",
    15,
    case(np.array([0.5, 2, 3], np.float32), "f32[2,3]"),
    case("f32[2,3]", np.array(2, np.float32)),
    case("i64[3]", np.array([0, 2, 3])),
    case("f32[3]", np.array([2, 3, -1], np.int32)),
    case("i32[3]", np.array([2, 0, 1], np.float32)),
    case("f32[0,3]", "f32[3]"),
    types="float+index number",
    traits=(Trait.SUMS, Trait.IMPRECISE_IN_F16),
    scalar=lambda x, y: math.pow(x, y),
    infer=followed(broadcast_to_one, lambda x, y: x**y if 0 <= y < 64 else 0),
)
def pow_(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the power y, in the dtype of `x`; negative powers of integers are computed in f64 and cut."""
    if y.size == 1 and y.ndim <= x.ndim and y.item() == 2:
        return np.square(x)
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        powers = np.power(x, y.astype(x.dtype)) if y.size == 0 or y.min() >= 0 else np.power(x.astype(np.float64), y)
    else:
        powers = np.power(x, y)
    return powers.astype(x.dtype, copy=False)
