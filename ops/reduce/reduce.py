"""Reductions: ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin, ReduceL1, ReduceL2, ReduceSumSquare,
ReduceLogSum, ReduceLogSumExp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.ir.op import Trait, case
from ...runtime.plan.rows import Fold, add, element, larger, magnitude, smaller, square, times
from .reduction_axes import mean_over, reduction

ONE = np.array([1])
TWO = np.array([0, -1])
NONE = np.zeros(0, np.int64)
KINDS = (
    case("f32[2,3,4]", ONE),
    case("f32[2,3,4]", TWO, keepdims=0),
    case("f32[2,3]"),
    case("f32[2,3]", NONE, noop_with_empty_axes=1),
    case("f32[2,0,3]", ONE),
    case("f64[2,3]", ONE),
)
SUMS = (Trait.SUMS, Trait.IMPRECISE_IN_F16)
OF_INTEGERS = (case("i64[2,3]", ONE), case("i32[2,3]", keepdims=0))
POSITIVE = (
    case(np.array([[0.5, 2, 3], [1, 7, 0.1]], np.float32), ONE),
    case(np.array([[0.5, 2, 3], [1, 7, 0.1]], np.float32), ONE, keepdims=0),
    case(np.array([[0.5, 2, 3]], np.float32)),
    case(np.array([[0.5, 2, 3]], np.float32), NONE, noop_with_empty_axes=1),
)


def mean_of(total: float, count: int) -> float:
    """The mean."""
    return total / count


def root_of(total: float) -> float:
    """The square root."""
    return math.sqrt(total)


def _power(x: float, most: float) -> float:
    """``exp(x - most)``, but no subnormal, which is slow: what is less than e^-87 vanishes in a sum with e^0."""
    below = x - most
    return math.exp(below if below > -87 or below != below else -87) * (x != -math.inf)


def _logarithm(total: float) -> float:
    return math.log(total)


def _finite(total: float) -> float:
    return total if total - total == 0 else 0 * (total == 0)


def _logarithm_above(total: float, most: float) -> float:
    return math.log(total) + most


@reduction(
    "ReduceSum",
    13,
    *KINDS,
    *OF_INTEGERS,
    axes_since=13,
    data=sum,
    types="float+long i64",
    traits=SUMS,
    folds=[Fold("found", element, add)],
)
def reduce_sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Sum over axes; the sum of no elements is 0."""
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@reduction(
    "ReduceMean",
    18,
    *KINDS,
    *OF_INTEGERS,
    types="float+long i64",
    traits=SUMS,
    folds=[Fold("found", element, add, mean_of)],
    fractions=True,
)
def reduce_mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Mean, NaN of nothing; integers are cut toward zero."""
    if x.dtype.kind in "fc":
        return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype) / x.dtype.type(
            math.prod(x.shape[axis] for axis in axes)
        )
    return np.trunc(mean_over(x, axes, keepdims))


@reduction(
    "ReduceProd",
    18,
    *KINDS,
    *OF_INTEGERS,
    data=math.prod,
    types="float+long i64",
    traits=SUMS,
    folds=[Fold("found", element, times)],
)
def reduce_prod(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Product, 1 of nothing."""
    return np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _limit(dtype: np.dtype, side: str) -> Any:
    """The lowest or highest value of a dtype, an infinity for floats."""
    if dtype.kind == "f":
        return dtype.type(-math.inf if side == "min" else math.inf)
    if dtype.kind == "b":
        return side == "max"
    return getattr(np.iinfo(dtype), side)


@reduction(
    "ReduceMax",
    20,
    *KINDS,
    *OF_INTEGERS,
    case("bool[2,3]", ONE),
    case("u8[2,0]", ONE),
    data=max,
    types="float+long+byte+bool i64",
    folds=[Fold("found", element, larger)],
)
def reduce_max(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The largest element, of nothing the lowest value."""
    return np.max(x, axis=axes, keepdims=keepdims, initial=_limit(x.dtype, "min"))


@reduction(
    "ReduceMin",
    20,
    *KINDS,
    *OF_INTEGERS,
    case("bool[2,3]", ONE),
    case("u8[2,0]", ONE),
    data=min,
    types="float+long+byte+bool i64",
    folds=[Fold("found", element, smaller)],
)
def reduce_min(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The smallest element, of nothing the highest value."""
    return np.min(x, axis=axes, keepdims=keepdims, initial=_limit(x.dtype, "max"))


@reduction(
    "ReduceL1", 18, *KINDS, *OF_INTEGERS, types="float+long i64", traits=SUMS, folds=[Fold("found", magnitude, add)]
)
def reduce_l1(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Sum of absolute values."""
    return np.sum(np.abs(x), axis=axes, keepdims=keepdims, dtype=x.dtype)


@reduction(
    "ReduceL2",
    18,
    *KINDS,
    case("i32[2,3]", ONE),
    types="float+long i64",
    traits=SUMS,
    folds=[Fold("found", square, add, root_of)],
    fractions=True,
)
def reduce_l2(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Square root of the sum of squares."""
    return np.sqrt(np.sum(np.square(x), axis=axes, keepdims=keepdims, dtype=x.dtype))


@reduction(
    "ReduceSumSquare", 18, *KINDS, *OF_INTEGERS, types="float+long i64", traits=SUMS, folds=[Fold("found", square, add)]
)
def reduce_sum_square(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Sum of squares."""
    return np.sum(np.square(x), axis=axes, keepdims=keepdims, dtype=x.dtype)


@reduction(
    "ReduceLogSum",
    28,
    *POSITIVE,
    case("f32[2,0,3]", ONE),
    types="float i64",
    traits=SUMS,
    folds=[Fold("found", element, add, _logarithm)],
    fractions=True,
)
def reduce_log_sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Logarithm of the sum."""
    return np.log(np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype))


@reduction(
    "ReduceLogSumExp",
    28,
    *KINDS,
    case(np.array([[1e4, 0], [-1e4, -9999]], np.float32), ONE),
    types="float i64",
    traits=SUMS,
    folds=[Fold("most", element, larger, _finite), Fold("found", _power, add, _logarithm_above)],
    fractions=True,
)
def reduce_log_sum_exp(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """Logarithm of the sum of exponentials, which are taken relative to the largest element so that none overflows."""
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    found = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis=axes)
