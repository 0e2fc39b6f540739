"""Powers and roots of p-norms; products and square roots for p = 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def powers(x: np.ndarray, p: float) -> np.ndarray:
    """``abs(x) ** p``."""
    known: dict[float, Callable[[], Any]] = {1: lambda: np.abs(x), 2: lambda: x * x}
    made: np.ndarray = known[p]() if p in known else np.abs(x) ** x.dtype.type(p)
    return made


def root(x: np.ndarray, p: float) -> np.ndarray:
    """``x ** (1 / p)``."""
    made: np.ndarray = x if p == 1 else np.sqrt(x) if p == 2 else x ** x.dtype.type(1 / p)
    return made
