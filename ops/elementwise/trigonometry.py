"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.ir.op import Trait, case
from .declare import elementwise

FRACTIONS = np.array([[-1, -0.9, -0.3], [0, 0.2, 1]], np.float32)
ABOVE_ONE = np.array([[1, 1.1, 2], [9, 100, 3e4]], np.float32)
EMPTY = (case("f32[2,3]"), case("f32[0,2]"))
CASES = (case("f32[2,3]"), case("f64[3]"), case("f32[0,2]"))
INEXACT: dict[str, Any] = {"types": "float", "traits": (Trait.IMPRECISE_IN_F16,)}


@elementwise("Sin", 22, *CASES, **INEXACT, scalar=lambda x: math.sin(x))
def sin(x: np.ndarray) -> np.ndarray:
    """Sine of radians."""
    return np.sin(x)


@elementwise("Cos", 22, *CASES, **INEXACT, scalar=lambda x: math.cos(x))
def cos(x: np.ndarray) -> np.ndarray:
    """Cosine of radians."""
    return np.cos(x)


@elementwise("Tan", 22, *CASES, **INEXACT, scalar=lambda x: math.tan(x))
def tan(x: np.ndarray) -> np.ndarray:
    """Tangent of radians."""
    return np.tan(x)


@elementwise("Asin", 22, case(FRACTIONS), *EMPTY, **INEXACT, scalar=lambda x: math.asin(x))
def asin(x: np.ndarray) -> np.ndarray:
    """Radians whose sine is x, NaN outside of [-1, 1]."""
    return np.arcsin(x)


@elementwise("Acos", 22, case(FRACTIONS), *EMPTY, **INEXACT, scalar=lambda x: math.acos(x))
def acos(x: np.ndarray) -> np.ndarray:
    """Radians whose cosine is x, NaN outside of [-1, 1]."""
    return np.arccos(x)


@elementwise("Atan", 22, *CASES, **INEXACT, scalar=lambda x: math.atan(x))
def atan(x: np.ndarray) -> np.ndarray:
    """Radians whose tangent is x."""
    return np.arctan(x)


@elementwise("Sinh", 22, *CASES, **INEXACT, scalar=lambda x: math.sinh(x))
def sinh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic sine."""
    return np.sinh(x)


@elementwise("Cosh", 22, *CASES, **INEXACT, scalar=lambda x: math.cosh(x))
def cosh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic cosine."""
    return np.cosh(x)


@elementwise("Tanh", 13, *CASES, types="float", traits=(Trait.FINITE_AT_ZERO,), scalar=lambda x: math.tanh(x))
def tanh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent."""
    return np.tanh(x)


@elementwise("Asinh", 22, *CASES, **INEXACT, scalar=lambda x: math.asinh(x))
def asinh(x: np.ndarray) -> np.ndarray:
    """Inverse hyperbolic sine."""
    return np.arcsinh(x)


@elementwise("Acosh", 22, case(ABOVE_ONE), *EMPTY, **INEXACT, scalar=lambda x: math.acosh(x))
def acosh(x: np.ndarray) -> np.ndarray:
    """Inverse hyperbolic cosine, NaN below 1."""
    return np.arccosh(x)


@elementwise("Atanh", 22, case(FRACTIONS), *EMPTY, **INEXACT, scalar=lambda x: math.atanh(x))
def atanh(x: np.ndarray) -> np.ndarray:
    """Inverse hyperbolic tangent, NaN outside of [-1, 1]."""
    return np.arctanh(x)
