"""Numbers of configurations that cannot be anything: each function gives the number, or raises ValueError with a sentence."""

from __future__ import annotations

import math
from typing import Any


def count(value: Any) -> int:
    """A number of things that a model has at least one of."""
    if int(value) < 1:
        raise ValueError(f"it is {int(value):,}, and there is at least 1")
    return int(value)


def positive(value: Any) -> float:
    """A factor or base."""
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{float(value)} is no finite number above 0")
    return float(value)


def not_negative(value: Any) -> float:
    """What is added so that nothing is divided by zero."""
    if not 0 <= float(value) < math.inf:
        raise ValueError(f"{float(value)} is no finite number from 0 on")
    return float(value)
