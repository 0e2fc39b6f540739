"""Erf: the error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.process_cache import process_cache
from ...runtime.ir.op import case
from .declare import elementwise

STEP = 0.25
LAST = 6.0
DEGREE = 12
RUN = 4096


@process_cache
def _taylor() -> np.ndarray:
    """Taylor coefficients, lowest first, around every multiple of STEP up to LAST, where erf is 1 in f64.

    The n-th derivative of erf is that of 2/sqrt(pi) * exp(-x*x), which Hermite polynomials give:
    (-1)**(n-1) * H[n-1](x) * 2/sqrt(pi) * exp(-x*x), with H[n+1] = 2*x*H[n] - 2*n*H[n-1].
    """
    table = np.zeros((DEGREE + 1, round(LAST / STEP) + 1))
    for index in range(table.shape[1]):
        x = index * STEP
        scale = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        table[0, index] = math.erf(x)
        before, hermite = 0.0, 1.0
        for order in range(1, DEGREE + 1):
            table[order, index] = (-1) ** (order - 1) * hermite * scale / math.factorial(order)
            before, hermite = hermite, 2 * x * hermite - 2 * (order - 1) * before
    return table


def erf_of(x: np.ndarray) -> np.ndarray:
    """The error function of f32 or f64 values, good to 1e-15, in the dtype of `x`; in runs that stay in the cache."""
    flat = x.reshape(-1)
    found = np.empty_like(flat)
    for start in range(0, flat.size, RUN):
        _run(flat[start : start + RUN], found[start : start + RUN])
    return found.reshape(x.shape)


def _run(x: np.ndarray, out: np.ndarray) -> None:
    size = np.minimum(np.abs(x, dtype=np.float64), LAST)
    nearest = np.nan_to_num(np.rint(size / STEP)).astype(np.intp)
    rest = size - nearest * STEP
    table = _taylor()
    found = table[DEGREE].take(nearest)
    for coefficients in table[DEGREE - 1 :: -1]:
        found *= rest
        found += coefficients.take(nearest)
    np.copysign(found, x, out=out, casting="same_kind")


@elementwise(
    "Erf",
    13,
    case("f32[2,3]"),
    case(np.array([-7, -1, 0, 1e-4, 3, 7], np.float32)),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x: math.erf(x),
)
def erf(x: np.ndarray) -> np.ndarray:
    """The error function, in [-1, 1]."""
    if x.dtype.kind != "f":
        return np.array([math.erf(item) for item in x.reshape(-1)], x.dtype).reshape(x.shape)
    return erf_of(x)
