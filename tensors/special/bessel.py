"""Bessel functions, Airy's function and Hurwitz' zeta function, in f64: integrals by the trapezoidal rule, which is
exact for periodic and for doubly exponential integrands, and asymptotic series for large arguments (DLMF, chapters 9,
10, 25)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.custom_function import Function, as_function
from ..core.registry import function, operation
from ..core.tensor import Tensor
from ..operations.operands import promoted, real_float

POINTS = 128
"""Points of the trapezoidal rule over a period."""
LARGE = 25.0
"""From here on the asymptotic series of J and Y have all digits of f64."""
LARGE_MODIFIED = 60.0
TERMS = 24
"""Terms of the asymptotic series."""
ORDERS = 32
"""Orders of Neumann's series."""
STEP, STEPS = 0.1, 400
"""Step and number of steps of the integral of K."""
SERIES_TO = -8.0
"""Airy's function is a power series from here up to 1."""
AIRY = 3 ** (-2 / 3) / math.gamma(2 / 3), 3 ** (-1 / 3) / math.gamma(1 / 3)
"""Ai(0), -Ai'(0)."""
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
SUMMED = 12
"""Terms of the zeta function before Euler's and Maclaurin's series, from 0 on."""
MOST_SUMMED = 10_000
CHUNK = 4096
"""Elements that are computed at once, each with all points of an integral."""


def _first_kind(order: int, x: np.ndarray) -> np.ndarray:
    """J of an integer order, by Bessel's integral."""
    angles = 2 * np.pi * np.arange(POINTS) / POINTS
    return np.asarray(np.cos(order * angles - x[..., None] * np.sin(angles)).mean(-1))


def _near_zero(order: int, x: np.ndarray, sign: int) -> np.ndarray:
    """J (sign -1) or I (sign 1) for |x| up to 1, by its power series, which keeps the relative precision."""
    half = np.where(np.abs(x) <= 1, x, 0) / 2
    term = half**order / math.factorial(order)
    total = term
    for k in range(1, 12):
        term = term * half * half * sign / (k * (k + order))
        total = total + term
    return total


def _hankel(order: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J and Y of large positive arguments."""
    square, term = 4.0 * order * order, np.ones_like(x)
    even, odd = np.zeros_like(x), np.zeros_like(x)
    for k in range(TERMS):
        part = even if k % 2 == 0 else odd
        part += term * (-1) ** (k // 2)
        term = term * (square - (2 * k + 1) ** 2) / ((k + 1) * 8 * x)
    angle = x - (order / 2 + 0.25) * np.pi
    size = np.sqrt(2 / (np.pi * x))
    return size * (even * np.cos(angle) - odd * np.sin(angle)), size * (even * np.sin(angle) + odd * np.cos(angle))


def bessel_j(order: int, x: np.ndarray) -> np.ndarray:
    """J of order 0 or 1."""
    size = np.abs(x)
    far = size > LARGE
    found = np.where(far, _hankel(order, np.where(far, size, LARGE))[0], _first_kind(order, np.where(far, 0, size)))
    found = np.where(size <= 1, _near_zero(order, size, -1), found)
    found = np.where(np.isinf(x), 0.0, np.where(np.isnan(x), np.nan, found))
    return found if order % 2 == 0 else np.where(x < 0, -found, found)


def bessel_y(order: int, x: np.ndarray) -> np.ndarray:
    """Y of order 0 or 1: Neumann's series, which is one of J of higher orders."""
    far = x > LARGE
    near = np.where(far | ~(x > 0), 1.0, x)
    log = np.log(near / 2) + np.euler_gamma
    if order == 0:
        found = 2 / np.pi * log * _first_kind(0, near)
        for k in range(1, ORDERS):
            found = found - 4 / np.pi * (-1) ** k / k * _first_kind(2 * k, near)
    else:
        found = 2 / np.pi * (log * _first_kind(1, near) - _first_kind(0, near) / near)
        for k in range(1, ORDERS):
            lower, higher = (_first_kind(2 * k + step, near) for step in (-1, 1))
            found = found + 2 / np.pi * (-1) ** k / k * (lower - higher)
    found = np.where(far, _hankel(order, np.where(far, x, LARGE))[1], found)
    found = np.where(np.isinf(x), 0.0, found)
    return np.where(x == 0, -np.inf, np.where((x < 0) | np.isnan(x), np.nan, found))


def scaled_i(order: int, x: np.ndarray) -> np.ndarray:
    """I of an integer order times exp(-|x|)."""
    size = np.abs(x)
    far = size > LARGE_MODIFIED
    angles = 2 * np.pi * np.arange(POINTS) / POINTS
    inner = np.where(far, 0, size)[..., None] * (np.cos(angles) - 1)
    near = (np.exp(inner) * np.cos(order * angles)).mean(-1)
    large = np.where(far, size, LARGE_MODIFIED)
    term, total = np.ones_like(large), np.zeros_like(large)
    for k in range(TERMS):
        total += term
        term = -term * (4.0 * order * order - (2 * k + 1) ** 2) / ((k + 1) * 8 * large)
    found = np.where(far, total / np.sqrt(2 * np.pi * large), near)
    found = np.where(size <= 1, _near_zero(order, size, 1) * np.exp(-size), found)
    found = np.where(np.isnan(x), np.nan, np.where(np.isinf(x), 0.0, found))
    return found if order % 2 == 0 else np.where(x < 0, -found, found)


def scaled_k(order: float, x: np.ndarray) -> np.ndarray:
    """K times exp(x)."""
    positive = np.where(x > 0, x, 1.0)
    step = STEP * np.minimum(1, np.sqrt(10 / positive))
    t = step[..., None] * np.arange(STEPS)
    with np.errstate(over="ignore"):
        values = np.exp(-positive[..., None] * 2 * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    found = step * (np.nansum(values, -1) - 0.5)
    if order in (0, 1):  # below, the integral does not end within the steps
        limit = 1 / positive if order else -np.log(positive / 2) - np.euler_gamma
        found = np.where(positive < 1e-9, limit, found)
    return np.where(x == 0, np.inf, np.where((x < 0) | np.isnan(x), np.nan, found))


def airy_ai(x: np.ndarray) -> np.ndarray:
    """Airy's function Ai."""
    positive = np.where(x > 1, x, 1.0)
    zeta = 2 / 3 * positive**1.5
    decaying = np.sqrt(positive / 3) / np.pi * np.exp(-zeta) * scaled_k(1 / 3, zeta)
    near = np.clip(np.where(np.isnan(x), 0, x), SERIES_TO, 1.0)
    cube, one, two = near**3, np.ones_like(near), near.copy()
    f, g = one.copy(), two.copy()
    for k in range(1, 40):
        one = one * cube / ((3 * k - 1) * (3 * k))
        two = two * cube / ((3 * k) * (3 * k + 1))
        f, g = f + one, g + two
    series = AIRY[0] * f - AIRY[1] * g
    far = np.where(x < SERIES_TO, -x, -SERIES_TO)
    zeta, term = 2 / 3 * far**1.5, np.ones_like(far)
    even, odd = np.zeros_like(far), np.zeros_like(far)
    for k in range(TERMS):
        part = even if k % 2 == 0 else odd
        part += term * (-1) ** (k // 2)
        term = term * (6 * k + 1) * (6 * k + 3) * (6 * k + 5) / (216 * (k + 1) * (2 * k + 1) * zeta)
    angle = zeta - np.pi / 4
    waves = (even * np.cos(angle) + odd * np.sin(angle)) / (np.sqrt(np.pi) * far**0.25)
    found = np.where(x > 1, decaying, np.where(x < SERIES_TO, waves, series))
    return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), 0.0, found))


def hurwitz_zeta(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The sum of 1 / (k + q) ** x over k from 0 on."""
    with np.errstate(all="ignore"):
        lowest = float(np.min(q, initial=0, where=np.isfinite(q)))
        count = SUMMED + min(int(-lowest), MOST_SUMMED)
        found = sum((q + k) ** -x for k in range(count))
        end = q + count
        found = found + end ** (1 - x) / (x - 1) + 0.5 * end**-x
        factor = x * end ** (-x - 1)
        for k, b in enumerate(BERNOULLI, 1):
            found = found + b / math.factorial(2 * k) * factor
            factor = factor * (x + 2 * k - 1) * (x + 2 * k) / (end * end)
        pole = (q <= 0) & (q == np.floor(q))
        undefined = (x < 1) | ((q <= 0) & ~pole & (x != np.floor(x))) | np.isnan(x + q)
        return np.where(undefined, np.nan, np.where((x == 1) | pole, np.inf, found))


def _wide(compute: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A function of f64 in the dtype of its arguments."""

    def of_any(*arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            flat = [each.reshape(-1) for each in np.broadcast_arrays(*arrays)]
            found = np.empty(flat[0].shape, arrays[0].dtype)
            for first in range(0, found.size, CHUNK):
                part = slice(first, first + CHUNK)
                found[part] = compute(*[each[part].astype(np.float64) for each in flat])
            return found.reshape(np.broadcast_shapes(*[array.shape for array in arrays]))

    return of_any


def unary(name: str, document: str, compute: Callable[[np.ndarray], np.ndarray], *names: str) -> Function:
    """Register a function of f64 arrays as `special_` and its name; the derivative is added by the caller."""
    body: Any = lambda x: _wide(compute)(x)  # noqa: E731 (options are read of its signature)
    body.__name__ = name
    made = as_function(body)

    def called(input: Any) -> Tensor:
        found: Tensor = made(real_float(input, name))
        return found

    called.__name__ = called.__qualname__ = f"special_{name}"
    called.__doc__ = document
    called.__annotations__ = {"input": "Any", "return": "Tensor"}
    function(f"special_{name}")(called)
    if names:
        operation(*names[1:])(_renamed(called, names[0]))
    return made


def _renamed(called: Callable[[Any], Tensor], name: str) -> Callable[[Any], Tensor]:
    def made(input: Any) -> Tensor:
        return called(input)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = called.__doc__
    return made


for _name, _compute, _order in (
    ("bessel_j", bessel_j, 0), ("bessel_j", bessel_j, 1), ("bessel_y", bessel_y, 0), ("bessel_y", bessel_y, 1),
):  # fmt: skip
    unary(f"{_name}{_order}", f"The Bessel function {_name[-1].upper()} of order {_order}.",
          lambda x, compute=_compute, order=_order: compute(order, x))  # type: ignore[misc]  # fmt: skip
for _order in (0, 1):
    unary(f"modified_bessel_i{_order}", f"The modified Bessel function I of order {_order}.",
          lambda x, order=_order: scaled_i(order, x) * np.exp(np.abs(x)))  # type: ignore[misc]  # fmt: skip
    unary(f"modified_bessel_k{_order}", f"The modified Bessel function K of order {_order}.",
          lambda x, order=_order: scaled_k(order, x) * np.exp(-x))  # type: ignore[misc]  # fmt: skip
    unary(f"scaled_modified_bessel_k{_order}", f"The modified Bessel function K of order {_order} times exp(x).",
          lambda x, order=_order: scaled_k(order, x))  # type: ignore[misc]  # fmt: skip
unary("airy_ai", "Airy's function Ai.", airy_ai)
_i0 = unary("i0", "The modified Bessel function I of order 0.", lambda x: scaled_i(0, x) * np.exp(np.abs(x)), "i0")
_i0e = unary("i0e", "The modified Bessel function I of order 0 times exp(-|x|).", lambda x: scaled_i(0, x))
_i1 = unary("i1", "The modified Bessel function I of order 1.", lambda x: scaled_i(1, x) * np.exp(np.abs(x)))
_i1e = unary("i1e", "The modified Bessel function I of order 1 times exp(-|x|).", lambda x: scaled_i(1, x))


def _share(x: np.ndarray) -> np.ndarray:
    """I1(x) / x times exp(-|x|), 1/2 at 0."""
    return np.where(x == 0, 0.5, scaled_i(1, x) / np.where(x == 0, 1, x))


@_i0.gradient
def _by_i0(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gradient * _wide(lambda at: scaled_i(1, at) * np.exp(np.abs(at)))(x)


@_i0e.gradient
def _by_i0e(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gradient * _wide(lambda at: scaled_i(1, at) - np.sign(at) * scaled_i(0, at))(x)


@_i1.gradient
def _by_i1(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gradient * _wide(lambda at: (scaled_i(0, at) - _share(at)) * np.exp(np.abs(at)))(x)


@_i1e.gradient
def _by_i1e(gradient: np.ndarray, x: np.ndarray) -> np.ndarray:
    return gradient * _wide(lambda at: scaled_i(0, at) - _share(at) - np.sign(at) * scaled_i(1, at))(x)


@as_function
def _zeta(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    return _wide(hurwitz_zeta)(x, q)


@_zeta.gradient
def _by_zeta(gradient: np.ndarray, x: np.ndarray, q: np.ndarray) -> tuple[None, np.ndarray]:
    return None, gradient * _wide(lambda s, at: -s * hurwitz_zeta(s + 1, at))(x, q)


@function("special_zeta")
def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz' zeta function: the sum of 1 / (k + other) ** input over k from 0 on; differentiable by `other`."""
    one, two = (real_float(Tensor(each), "zeta") for each in promoted([input, other]))
    found: Tensor = _zeta(one, two)
    return found
