"""Variadic operators with broadcasting: Max, Min, Mean, Sum."""

from __future__ import annotations

import functools

import numpy as np

from ...runtime.ir.op import Trait, case
from .declare import broadcast_to_one, elementwise, followed

NANS = np.array([1, np.nan, 3], np.float32)


@elementwise(
    "Max",
    13,
    case("f32[2,3]", "f32[3]", "f32[2,1]"),
    case("i64[3]"),
    case("f32[3]", NANS),
    case("f32[0,3]", "f32[3]"),
    case("u8[3]", "u8[3]"),
    types="number*",
    traits=(Trait.COMMUTATIVE,),
    scalar=lambda a, b: a + b if a != a or b != b else max(a, b),
    infer=followed(broadcast_to_one, lambda *items: max(items)),
)
def max_(*tensors: np.ndarray) -> np.ndarray:
    """The largest of the elements, NaN where one of them is."""
    return functools.reduce(np.maximum, tensors)


@elementwise(
    "Min",
    13,
    case("f32[2,3]", "f32[3]", "f32[2,1]"),
    case("i64[3]"),
    case("f32[3]", NANS),
    case("f32[0,3]", "f32[3]"),
    case("u8[3]", "u8[3]"),
    types="number*",
    traits=(Trait.COMMUTATIVE,),
    scalar=lambda a, b: a + b if a != a or b != b else min(a, b),
    infer=followed(broadcast_to_one, lambda *items: min(items)),
)
def min_(*tensors: np.ndarray) -> np.ndarray:
    """The smallest of the elements, NaN where one of them is."""
    return functools.reduce(np.minimum, tensors)


@elementwise(
    "Sum",
    13,
    case("f32[2,3]", "f32[3]", "f32[2,1]"),
    case("f32[3]"),
    case("f32[2,3]", "f32[3]"),
    case("f32[0,3]", "f32[3]"),
    types="float*",
    scalar=lambda a, b: a + b,
    infer=broadcast_to_one,
)
def sum_(*tensors: np.ndarray) -> np.ndarray:
    """Sum of all tensors."""
    return functools.reduce(np.add, tensors)


@elementwise(
    "Mean",
    13,
    case("f32[2,3]", "f32[3]", "f32[2,1]"),
    case("f32[3]"),
    case("f32[0,3]", "f32[3]"),
    types="float*",
    scalar=None,
    infer=broadcast_to_one,
)
def mean(*tensors: np.ndarray) -> np.ndarray:
    """Arithmetic mean of all tensors."""
    return functools.reduce(np.add, tensors) / len(tensors)
