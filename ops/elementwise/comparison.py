"""Comparisons (Equal, Less, LessOrEqual, Greater, GreaterOrEqual) and classification (IsNaN, IsInf)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case
from .declare import binary, elementwise, followed, truth

NANS = np.array([1, np.nan, 3, -np.inf, np.inf], np.float32)


def _equal_lengths(items: Sequence[Dim]) -> Dim:
    """Whether elements are the same where they are lengths by name: one name is, a length and a negative number never
    are."""
    one, other = items
    if one == other and one is not None:
        return 1
    negative = any(isinstance(item, int) and item < 0 for item in items)
    return 0 if negative and any(isinstance(item, str) for item in items) else None


@binary(
    "Equal",
    19,
    case("i64[2,3]", "i64[3]"),
    case("f32[5]", NANS),
    case("string[2,3]", "string[3]"),
    case("bool[2,3]", "bool[3]"),
    case("f32[0,3]", "f32[3]"),
    types="T=number+bool+string T",
    traits=(Trait.COMMUTATIVE,),
    scalar=lambda a, b: a == b,
    infer=followed(truth, lambda a, b: a == b, _equal_lengths),
)
def equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool, a == b elementwise with broadcasting; NaN equals nothing."""
    return np.equal(a, b).astype(bool, copy=False)


@binary(
    "Less",
    13,
    case("i64[2,3]", "i64[3]"),
    case("f32[5]", NANS),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    scalar=lambda a, b: a < b,
    infer=followed(truth, lambda a, b: a < b),
)
def less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool, a < b elementwise with broadcasting."""
    return np.less(a, b)


@binary(
    "LessOrEqual",
    16,
    case("i64[2,3]", "i64[3]"),
    case("f32[5]", NANS),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    scalar=lambda a, b: a <= b,
    infer=followed(truth, lambda a, b: a <= b),
)
def less_or_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool, a <= b elementwise with broadcasting."""
    return np.less_equal(a, b)


@binary(
    "Greater",
    13,
    case("i64[2,3]", "i64[3]"),
    case("f32[5]", NANS),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    scalar=lambda a, b: a > b,
    infer=followed(truth, lambda a, b: a > b),
)
def greater(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool, a > b elementwise with broadcasting."""
    return np.greater(a, b)


@binary(
    "GreaterOrEqual",
    16,
    case("i64[2,3]", "i64[3]"),
    case("f32[5]", NANS),
    case("f32[0,3]", "f32[3]"),
    types="T=number T",
    scalar=lambda a, b: a >= b,
    infer=followed(truth, lambda a, b: a >= b),
)
def greater_or_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool, a >= b elementwise with broadcasting."""
    return np.greater_equal(a, b)


@elementwise("IsNaN", 20, case(NANS), case("f32[0,3]"), types="f8+float", scalar=lambda x: x != x, infer=truth)
def is_nan(x: np.ndarray) -> np.ndarray:
    """bool, whether each element is NaN."""
    return np.isnan(x)


def _is_inf(x: float, detect_negative: int, detect_positive: int) -> bool:
    return (detect_negative != 0 and x == -math.inf) or (detect_positive != 0 and x == math.inf)


@elementwise(
    "IsInf",
    20,
    case(NANS),
    case(NANS, detect_negative=0),
    case(NANS, detect_positive=0),
    case("f32[0,3]"),
    types="f8+float",
    scalar=_is_inf,
    infer=truth,
)
def is_inf(x: np.ndarray, *, detect_negative: int = 1, detect_positive: int = 1) -> np.ndarray:
    """bool, whether each element is infinite with a sign that is asked for."""
    return ((x == np.inf) & bool(detect_positive)) | ((x == -np.inf) & bool(detect_negative))
