"""The normal distribution's functions and entropies, with gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.registry import FUNCTIONS, function, operation
from ..core.tensor import Tensor
from ..operations.indexing import where
from ..operations.operands import promoted, real_float
from .bessel import unary
from .gamma import igamma_upper

ASYMPTOTIC_FROM = 25.0
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def scaled_erfc(x: np.ndarray) -> np.ndarray:
    """exp(x * x) * erfc(x) of f64."""
    large = np.where(x > ASYMPTOTIC_FROM, x, ASYMPTOTIC_FROM)
    square = large * large
    series = (1 - 0.5 / square * (1 - 1.5 / square * (1 - 2.5 / square))) / (large * math.sqrt(math.pi))
    near = np.where(x > ASYMPTOTIC_FROM, 0, x)
    return np.where(x > ASYMPTOTIC_FROM, series, np.exp(near * near) * _erfc(near))


def log_normal_distribution(x: np.ndarray) -> np.ndarray:
    """The logarithm of the standard normal distribution function of f64."""
    low = np.where(x < -1, x, -1.0)
    below = np.log(scaled_erfc(-low / math.sqrt(2)) / 2) - low * low / 2
    return np.where(x < -1, below, np.log1p(-_erfc(np.where(x < -1, 0, x) / math.sqrt(2)) / 2))


_erfcx = unary("erfcx", "exp(x * x) * erfc(x).", scaled_erfc)
_log_ndtr = unary("log_ndtr", "The logarithm of the standard normal distribution function.", log_normal_distribution)


@_erfcx.gradient
def _by_erfcx(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return gradient * (2 * wide * scaled_erfc(wide) - 2 / math.sqrt(math.pi)).astype(x.dtype)


@_log_ndtr.gradient
def _by_log_ndtr(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    density = -wide * wide / 2 - math.log(2 * math.pi) / 2
    return gradient * np.exp(density - log_normal_distribution(wide)).astype(x.dtype)


@function("special_ndtr")
def ndtr(input: Any) -> Tensor:
    """The standard normal distribution function."""
    x = real_float(input, "ndtr")
    found: Tensor = FUNCTIONS["erfc"](x * -math.sqrt(0.5)) / 2
    return found


@function("special_entr")
def entr(input: Any) -> Tensor:
    """-x log(x), 0 at 0 and -inf below."""
    x = real_float(input, "entr")
    inner = where(x > 0, x, 1.0)
    found: Tensor = where(x > 0, -inner * inner.log(), where(x.eq(0), 0.0, where(x.isnan(), x, -math.inf)))
    return found


@function("special_xlog1py")
def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log(1 + other), 0 where input is 0."""
    one, two = (real_float(Tensor(each), "xlog1py") for each in promoted([input, other]))
    found: Tensor = one * where(one.eq(0) & ((two <= -1) | two.eq(math.inf)), 0.0, two).log1p()
    return found


@function("special_spherical_bessel_j0")
def spherical_bessel_j0(input: Any) -> Tensor:
    """sin(x) / x, 1 at 0."""
    found: Tensor = FUNCTIONS["sinc"](real_float(input, "spherical_bessel_j0") / math.pi)
    return found


@operation("special_gammaincc")
def igammac(input: Any, other: Any) -> Tensor:
    """The regularized upper incomplete gamma function Q(input, other); differentiable by `other`."""
    one, two = (real_float(Tensor(each), "igammac") for each in promoted([input, other]))
    found: Tensor = igamma_upper(one, two)
    return found
