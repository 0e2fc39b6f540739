"""Boolean and bitwise logic: And, Or, Xor, Not, BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case
from ..rules.shape_rules import model_error, same_as_input
from .declare import binary, broadcast_to_one, elementwise, followed, truth


@binary(
    "And",
    7,
    case("bool[2,3]", "bool[3]"),
    case("bool[0,3]", "bool[1]"),
    types="bool bool",
    traits=(Trait.COMMUTATIVE,),
    scalar=lambda a, b: a and b,
    infer=followed(truth, lambda a, b: a & b),
)
def and_(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logical and of booleans, elementwise with broadcasting."""
    return np.logical_and(a, b)


@binary(
    "Or",
    7,
    case("bool[2,3]", "bool[3]"),
    case("bool[0,3]", "bool[1]"),
    types="bool bool",
    traits=(Trait.COMMUTATIVE,),
    scalar=lambda a, b: a or b,
    infer=followed(truth, lambda a, b: a | b),
)
def or_(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logical or of booleans, elementwise with broadcasting."""
    return np.logical_or(a, b)


@binary(
    "Xor",
    7,
    case("bool[2,3]", "bool[3]"),
    case("bool[0,3]", "bool[1]"),
    types="bool bool",
    scalar=lambda a, b: a != b,
    infer=followed(truth, lambda a, b: a ^ b),
)
def xor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exclusive or of booleans, elementwise with broadcasting."""
    return np.logical_xor(a, b)


@elementwise(
    "Not",
    1,
    case("bool[2,3]"),
    case("bool[0,3]"),
    types="bool",
    scalar=lambda x: not x,
    infer=followed(truth, lambda x: 1 - x),
)
def not_(x: np.ndarray) -> np.ndarray:
    """Logical not of booleans."""
    return np.logical_not(x)


@elementwise(
    "BitwiseAnd",
    18,
    case("i32[2,3]", "i32[3]"),
    case("u8[0,3]", "u8[1]"),
    types="T=integer T",
    scalar=lambda a, b: a & b,
    infer=broadcast_to_one,
)
def bitwise_and(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bits that both have."""
    return np.bitwise_and(a, b)


@elementwise(
    "BitwiseOr",
    18,
    case("i32[2,3]", "i32[3]"),
    case("u8[0,3]", "u8[1]"),
    types="T=integer T",
    scalar=lambda a, b: a | b,
    infer=broadcast_to_one,
)
def bitwise_or(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bits that one has."""
    return np.bitwise_or(a, b)


@elementwise(
    "BitwiseXor",
    18,
    case("i32[2,3]", "i32[3]"),
    case("u8[0,3]", "u8[1]"),
    types="T=integer T",
    scalar=lambda a, b: a ^ b,
    infer=broadcast_to_one,
)
def bitwise_xor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bits that exactly one has."""
    return np.bitwise_xor(a, b)


@elementwise(
    "BitwiseNot",
    18,
    case("i32[2,3]"),
    case("u8[3]"),
    case("u8[0,3]"),
    types="integer",
    scalar=lambda x: ~x,
    infer=same_as_input,
)
def bitwise_not(x: np.ndarray) -> np.ndarray:
    """Bits that it does not have."""
    return np.bitwise_not(x)


def _shift(x: int, y: int, direction: str) -> int:
    if 0 <= y < 64:
        return x << y if direction == "LEFT" else x >> y
    return -1 if direction == "RIGHT" and x < 0 else 0


@elementwise(
    "BitShift",
    28,
    case("u32[2,3]", np.array([1, 9, 40], np.uint32), direction="LEFT"),
    case("u8[3]", np.array([1, 3, 7], np.uint8), direction="RIGHT"),
    case("i8[2,3]", np.array([1, -2, 9], np.int8), direction="RIGHT"),
    case("u8[0]", "u8[1]", direction="LEFT"),
    types="T=integer T",
    scalar=_shift,
    infer=broadcast_to_one,
)
def bit_shift(x: np.ndarray, y: np.ndarray, *, direction: str) -> np.ndarray:
    """Bits moved by `y` positions to the LEFT or RIGHT; positions outside of the dtype leave nothing but the sign."""
    if direction not in ("LEFT", "RIGHT"):
        raise model_error("BitShift knows no such direction", expected="LEFT or RIGHT", found=direction)
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    places = np.where(inside, y, 0).astype(x.dtype)
    if direction == "LEFT":
        return np.where(inside, np.left_shift(x, places), 0).astype(x.dtype)
    return np.where(inside, np.right_shift(x, places), np.where(x < 0, -1, 0).astype(x.dtype))
