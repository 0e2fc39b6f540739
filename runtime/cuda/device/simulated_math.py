"""`math` for the simulator: domain and overflow errors return infinity or NaN, as on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_SAME = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "floor",
    "ceil",
    "trunc",
    "fabs",
    "fmod",
    "copysign",
    "isnan",
    "isinf",
    "isfinite",
)
_RENAMED = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "pow": "power",
    "atan2": "arctan2",
}


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*numbers: Any) -> Any:
        kind = next((type(number) for number in numbers if isinstance(number, np.floating)), np.float64)
        try:
            return kind(function(*map(float, numbers)))
        except (OverflowError, ValueError):
            return kind(math.nan if any(map(math.isnan, numbers)) or numbers[0] < 0 else math.inf)

    return computed


for _name in _SAME:
    globals()[_name] = getattr(np, _name)
for _name, _numpy in _RENAMED.items():
    globals()[_name] = getattr(np, _numpy)
erf, erfc, gamma, lgamma = (_quiet(item) for item in (math.erf, math.erfc, math.gamma, math.lgamma))
pi, e, inf, nan, tau = math.pi, math.e, math.inf, math.nan, math.tau
