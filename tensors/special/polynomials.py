"""Orthogonal polynomials whose degree is a tensor, too, by their recurrences in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.custom_function import as_function
from ..core.registry import function
from ..core.tensor import Tensor
from ..operations.operands import promoted, real_float

Step = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From k, x and the polynomials of degree k and k - 1 to that of degree k + 1."""


def _doubled(k: int, x: np.ndarray, now: np.ndarray, before: np.ndarray) -> np.ndarray:
    return 2 * x * now - before


POLYNOMIALS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], Step]] = {
    "chebyshev_polynomial_t": ("Chebyshev's polynomials of the first kind.", lambda x: x, _doubled),
    "chebyshev_polynomial_u": ("Chebyshev's polynomials of the second kind.", lambda x: 2 * x, _doubled),
    "chebyshev_polynomial_v": ("Chebyshev's polynomials of the third kind.", lambda x: 2 * x - 1, _doubled),
    "chebyshev_polynomial_w": ("Chebyshev's polynomials of the fourth kind.", lambda x: 2 * x + 1, _doubled),
    "hermite_polynomial_h": (
        "Hermite's polynomials of physics.", lambda x: 2 * x, lambda k, x, now, before: 2 * (x * now - k * before)
    ),
    "hermite_polynomial_he": (
        "Hermite's polynomials of probability.", lambda x: x, lambda k, x, now, before: x * now - k * before
    ),
    "laguerre_polynomial_l": (
        "Laguerre's polynomials.", lambda x: 1 - x,
        lambda k, x, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    ),
    "legendre_polynomial_p": (
        "Legendre's polynomials.", lambda x: x,
        lambda k, x, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    ),
}  # fmt: skip
"""Description, the polynomial of degree 1, and the recurrence; that of degree 0 is 1, of negative degrees 0."""


def _values(first: Callable[[np.ndarray], np.ndarray], step: Step, x: np.ndarray, n: np.ndarray) -> np.ndarray:
    x, n = np.broadcast_arrays(x, n)
    degrees = np.trunc(np.where(np.isfinite(n), n, -1)).astype(np.int64)
    before, now = np.ones_like(x), first(x)
    found = np.where(degrees < 0, 0.0, before)
    with np.errstate(all="ignore"):
        for k in range(1, int(degrees.max(initial=0)) + 1):
            found = np.where(degrees == k, now, found)
            before, now = now, step(k, x, now, before)
            if not np.isfinite(now).any():
                return np.where(degrees > k, now, found)
    return found


def _define(name: str, document: str, first: Callable[[np.ndarray], np.ndarray], step: Step) -> None:
    def body(x: np.ndarray, n: np.ndarray) -> np.ndarray:
        return _values(first, step, x.astype(np.float64), n.astype(np.float64)).astype(x.dtype)

    body.__name__ = name
    compute = as_function(body)

    def made(input: Any, n: Any) -> Tensor:
        one, two = (real_float(Tensor(each), name) for each in promoted([input, n]))
        found: Tensor = compute(one, two)
        return found

    made.__name__ = made.__qualname__ = f"special_{name}"
    made.__doc__ = document
    made.__annotations__ = {"input": "Any", "n": "Any", "return": "Tensor"}
    function(f"special_{name}")(made)


def _define_shifted(name: str, document: str, first: Callable[[np.ndarray], np.ndarray], step: Step) -> None:
    _define(
        f"shifted_{name}", f"{document[:-1]}, of 2 x - 1.", lambda x: first(2 * x - 1),
        lambda k, x, now, before: step(k, 2 * x - 1, now, before),
    )  # fmt: skip


for _name, _row in POLYNOMIALS.items():
    _define(_name, *_row)
    if _name.startswith("chebyshev"):
        _define_shifted(_name, *_row)
