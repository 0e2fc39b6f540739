"""Settings of preparations, bounded: ValueError for values that are of another kind or out of range."""

from __future__ import annotations

import math
from typing import Any

from ...runtime.base.units import counted

MAX_EDGE = 1 << 12
"""Pixels of an edge that files may ask for; published models ask for up to 2,560."""


def integer(name: str, value: Any, most: int = MAX_EDGE) -> int:
    """An integer of 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        raise ValueError(f"{name} is {value!r}, expected 1 to {most}")
    return value


def finite(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return float(value)


def positive(name: str, value: Any) -> float:
    """A finite number above 0."""
    if finite(name, value) <= 0:
        raise ValueError(f"{name} is {value!r}, expected a positive number")
    return float(value)


def per_channel(name: str, value: Any, count: int) -> tuple[float, ...]:
    """A finite number for each channel; one alone is that of all."""
    values = value if isinstance(value, list | tuple) else (value,)
    if len(values) not in (1, count):
        raise ValueError(f"{name} has {counted(len(values), 'number')}, expected {count}")
    return tuple(finite(name, each) for each in (values * count if len(values) == 1 else values))
