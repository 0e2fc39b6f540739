"""The logarithm of the gamma function, its derivatives, and the incomplete gamma function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..autograd.custom_function import as_function
from ..core.expression import cast
from ..core.registry import function, operation
from ..core.tensor import Tensor
from ..operations.operands import expression_of, real_float

LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
"""Coefficients of Lanczos' approximation with g = 7 (P. Godfrey 2001)."""
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""B_2, B_4 ... B_14."""
MAX_STEPS = 200
"""Maximum steps of the recurrence towards large arguments, from negative ones on."""
ASYMPTOTIC_FROM = 10
"""Arguments from which the asymptotic series has all digits of f64."""


def log_gamma(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)| of f64."""
    with np.errstate(all="ignore"):
        reflected = x < 0.5
        z = np.where(reflected, 1 - x, x) - 1
        series = LANCZOS[0] + sum(c / (z + n) for n, c in enumerate(LANCZOS[1:], 1))
        t = z + 7.5
        found = 0.5 * math.log(2 * math.pi) + (z + 0.5) * np.log(t) - t + np.log(series)
        found = np.where(reflected, math.log(math.pi) - np.log(np.abs(np.sin(np.pi * x))) - found, found)
        return np.where(np.isinf(x) | ((x <= 0) & (x == np.floor(x))), np.inf, found)


def poly_gamma(order: int, x: np.ndarray) -> np.ndarray:
    """The derivative of this order of `digamma`, of f64; for arguments from about -190 on."""
    sign = -1.0 if order % 2 == 0 else 1.0
    with np.errstate(all="ignore"):
        reflected = (x <= 0) & (order <= 1)
        z, total = np.where(reflected, 1 - x, x), np.zeros_like(x)
        lowest = float(np.min(z, initial=0, where=np.isfinite(z)))
        for _ in range(min(int(ASYMPTOTIC_FROM - min(lowest, 0)) + 1, MAX_STEPS)):
            small = z < ASYMPTOTIC_FROM
            step = 1 / np.where(small, z, 1) ** (order + 1) * math.factorial(order)
            total += np.where(small, step * sign, 0)
            z = np.where(small, z + 1, z)
        if order == 0:
            series = np.log(z) - 1 / (2 * z) - sum(b / (2 * k * z ** (2 * k)) for k, b in enumerate(BERNOULLI, 1))
        else:
            series = math.factorial(order - 1) / z**order + math.factorial(order) / (2 * z ** (order + 1))
            for k, b in enumerate(BERNOULLI, 1):
                series = series + b * math.factorial(2 * k + order - 1) / (math.factorial(2 * k) * z ** (2 * k + order))
            series = sign * series
        found = series + total
        if order == 0:
            found = np.where(reflected, found - np.pi / np.tan(np.pi * x), found)
            found = np.where((x < 0) & (x == np.floor(x)), np.nan, found)
            return np.where(x == 0, np.where(np.signbit(x), np.inf, -np.inf), found)
        if order == 1:
            return np.where(reflected, (np.pi / np.sin(np.pi * x)) ** 2 - found, found)
        return found


def incomplete_gamma(a: np.ndarray, x: np.ndarray, upper: bool = False) -> np.ndarray:
    """The regularized lower incomplete gamma function of f64: a series below a + 1, a continued fraction above."""
    a, x = np.broadcast_arrays(a, x)
    with np.errstate(all="ignore"):
        front = np.exp(a * np.log(x) - x - log_gamma(a))
        term = total = 1 / a
        for n in range(1, 400):
            term = term * x / (a + n)
            total = total + term
        low = 1e-300
        b = x + 1 - a
        c, d = np.full_like(x, 1 / low), 1 / np.where(b == 0, low, b)
        h = d
        for n in range(1, 400):
            an = -n * (n - a)
            b = b + 2
            d = an * d + b
            c = b + an / c
            d = 1 / np.where(np.abs(d) < low, low, d)
            c = np.where(np.abs(c) < low, low, c)
            h = h * d * c
        near, far = front * total, front * h
        found = np.where(x < a + 1, 1 - near if upper else near, far if upper else 1 - far)
        none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
        found = np.select([np.isinf(a) & np.isinf(x), x == 0, np.isinf(a)], [np.nan, none, none], found)
        found = np.where(np.isinf(x) & ~np.isinf(a) | ((a == 0) & (x > 0)), all_, found)
        return np.where((a < 0) | (x < 0) | np.isnan(a + x) | ((a == 0) & (x == 0)), np.nan, found)


@as_function
def _lgamma(x: np.ndarray) -> np.ndarray:
    return log_gamma(x.astype(np.float64)).astype(x.dtype)


@as_function
def _polygamma(x: np.ndarray, *, order: int) -> np.ndarray:
    return poly_gamma(order, x.astype(np.float64)).astype(x.dtype)


@as_function
def _lgamma_gradient(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gradient * poly_gamma(0, x.astype(np.float64)).astype(x.dtype)


@as_function
def _polygamma_gradient(gradient: np.ndarray, x: np.ndarray, *, order: int) -> np.ndarray:
    return gradient * poly_gamma(order + 1, x.astype(np.float64)).astype(x.dtype)


@as_function
def _igamma(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return incomplete_gamma(a.astype(np.float64), x.astype(np.float64)).astype(x.dtype)


@as_function
def igamma_upper(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return incomplete_gamma(a.astype(np.float64), x.astype(np.float64), True).astype(x.dtype)


@igamma_upper.gradient
def _igamma_upper_gradient(gradient: np.ndarray, a: np.ndarray, x: np.ndarray) -> tuple[None, np.ndarray]:
    return None, _by_igamma(-gradient, a, x)


_lgamma.gradient(_lgamma_gradient)
_polygamma.gradient(_polygamma_gradient)


@_lgamma_gradient.gradient
def _lgamma_second(outer: np.ndarray, gradient: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(np.float64)
    return outer * poly_gamma(0, wide).astype(x.dtype), outer * gradient * poly_gamma(1, wide).astype(x.dtype)


@_igamma.gradient
def _igamma_gradient(gradient: np.ndarray, a: np.ndarray, x: np.ndarray) -> tuple[None, np.ndarray]:
    return None, _by_igamma(gradient, a, x)


def _by_igamma(gradient: np.ndarray, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    wide, at = a.astype(np.float64), x.astype(np.float64)
    return gradient * np.exp((wide - 1) * np.log(at) - at - log_gamma(wide)).astype(x.dtype)


@operation("special_gammaln")
def lgamma(input: Any) -> Tensor:
    """log |gamma(x)| of each element, in its float dtype."""
    found: Tensor = _lgamma(real_float(input, "lgamma"))
    return found


@operation("special_digamma")
def digamma(input: Any) -> Tensor:
    """The derivative of `lgamma`."""
    found: Tensor = _polygamma(real_float(input, "digamma"), order=0)
    return found


@function()
def polygamma(n: int, input: Any) -> Tensor:
    """The n-th derivative of `digamma`."""
    if not isinstance(n, int) or n < 0:
        raise UsageError("E-TENSOR-VALUE", None, f"polygamma of order {n!r}", expected="an integer from 0 on")
    found: Tensor = _polygamma(real_float(input, "polygamma"), order=n)
    return found


@function()
def mvlgamma(input: Any, p: int) -> Tensor:
    """The logarithm of the gamma function of p dims."""
    x = real_float(input, "mvlgamma")
    steps = Tensor(cast(expression_of(np.arange(p) / -2), x.dtype))
    return lgamma(x.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


@operation("special_gammainc")
def igamma(input: Any, other: Any) -> Tensor:
    """The regularized lower incomplete gamma function P(input, other); differentiable by `other`."""
    found: Tensor = _igamma(real_float(input, "igamma"), real_float(other, "igamma"))
    return found
