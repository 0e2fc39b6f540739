"""Unary operators: signs, rounding, roots, powers, Identity."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.shape_rules import same_as_input
from .declare import elementwise, followed

EDGES = np.array([-2.5, -1.5, -0.5, -0.2, 0, 0.5, 1.5, 2.5, 7.7], np.float32)
POSITIVE = np.array([[0.25, 1, 2], [9, 100, 3e4]], np.float32)


def infer_identity(node: Inference) -> None:
    """The output is what the input is, sequences and known elements included."""
    value = node.value(0)
    node.set(0, node.dtype(0), node.shape(0), data=node.data(0), container=value.container if value is not None else ())


@op(
    "Identity",
    since=25,
    types="any+optional+sequence",
    traits=(Trait.RESHAPES, Trait.MOVES),
    infer=infer_identity,
    scalar=lambda x: x,
    examples=[case("f32[2,3]"), case("string[3]"), case("i64[0]")],
)
def identity(x: np.ndarray) -> np.ndarray:
    """The input itself."""
    return x


@elementwise(
    "Abs",
    13,
    case("f32[2,3]"),
    case("i8[5]"),
    case("u8[3]"),
    case("f32[0,2]"),
    types="number",
    traits=(Trait.NON_NEGATIVE,),
    scalar=lambda x: abs(x),
    infer=followed(same_as_input, abs),
)
def abs_(x: np.ndarray) -> np.ndarray:
    """Absolute value."""
    return np.absolute(x)


@elementwise(
    "Neg",
    13,
    case("f32[2,3]"),
    case("i8[5]"),
    case("f32[0,2]"),
    types="float+int",
    scalar=lambda x: -x,
    infer=followed(same_as_input, lambda x: -x),
)
def neg(x: np.ndarray) -> np.ndarray:
    """-x."""
    return np.negative(x)


@elementwise(
    "Sign",
    13,
    case("f32[2,3]"),
    case("i64[5]"),
    case("u8[3]"),
    case(np.array([0, -3, 2], np.float32)),
    types="number",
    scalar=lambda x: 1 if x > 0 else -1 if x < 0 else 0 if x == 0 else x,
    infer=followed(same_as_input, lambda x: (x > 0) - (x < 0)),
)
def sign(x: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; NaN stays."""
    return np.sign(x)


# Elements of 2**52 and above, infinities and NaN have no fraction and do not fit the integers that floor and ceil make.


def _floor(x: float) -> float:
    return x if not abs(x) < 4503599627370496.0 else math.copysign(math.floor(x), x)


def _ceil(x: float) -> float:
    return x if not abs(x) < 4503599627370496.0 else math.copysign(math.ceil(x), x)


def _round(x: float) -> float:
    if not abs(x) < 4503599627370496.0:
        return x
    below = math.floor(x)
    rest = x - below
    up = rest > 0.5 or (rest == 0.5 and below % 2 == 1)
    return math.copysign(below + (1 if up else 0), x)


@elementwise("Floor", 13, case(EDGES), case("f32[0,2]"), case("f64[3]"), types="float", scalar=_floor)
def floor(x: np.ndarray) -> np.ndarray:
    """The next integer below."""
    return np.floor(x)


@elementwise("Ceil", 13, case(EDGES), case("f32[0,2]"), case("f64[3]"), types="float", scalar=_ceil)
def ceil(x: np.ndarray) -> np.ndarray:
    """The next integer above."""
    return np.ceil(x)


@elementwise("Round", 22, case(EDGES), case("f32[0,2]"), case("f64[3]"), types="float", scalar=_round)
def round_(x: np.ndarray) -> np.ndarray:
    """The nearest integer, halves to the even one."""
    return np.rint(x)


@elementwise(
    "Sqrt",
    13,
    case(POSITIVE),
    case("f32[2,3]"),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.IMPRECISE_IN_F16,),
    scalar=lambda x: math.sqrt(x),
)
def sqrt(x: np.ndarray) -> np.ndarray:
    """Square root, NaN of negative elements."""
    return np.sqrt(x)


@elementwise(
    "Reciprocal",
    13,
    case("f32[2,3]"),
    case("f32[0,2]"),
    case("f64[3]"),
    types="float",
    traits=(Trait.IMPRECISE_IN_F16,),
    scalar=lambda x: 1 / x,
)
def reciprocal(x: np.ndarray) -> np.ndarray:
    """1 / x."""
    return np.reciprocal(x)


@elementwise(
    "Exp",
    13,
    case("f32[2,3]"),
    case("f32[0,2]"),
    case("f64[3]"),
    types="float",
    traits=(Trait.NON_NEGATIVE, Trait.SUMS, Trait.IMPRECISE_IN_F16),
    scalar=lambda x: math.exp(x),
)
def exp(x: np.ndarray) -> np.ndarray:
    """e to the power x."""
    return np.exp(x)


@elementwise(
    "Log",
    13,
    case(POSITIVE),
    case("f32[2,3]"),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.SUMS, Trait.IMPRECISE_IN_F16),
    scalar=lambda x: math.log(x),
)
def log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm, NaN of negative elements."""
    return np.log(x)
