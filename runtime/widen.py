"""Half precision widened to float32 by compiled code, for where Numba is loaded anyway: NumPy takes ten times as long."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernel import inlined, kernel
from .simd import LANES, bits, from_bits, load, select, store


@inlined
def _widened(pattern: Any) -> Any:
    """The numbers with these half-precision bits; NaN keeps its payload."""
    magnitude = (pattern & 0x7FFF) << 13
    scaled = bits(from_bits(magnitude) * 2.0**112)
    return from_bits(select(magnitude >= 0x0F800000, magnitude | 0x7F800000, scaled) | ((pattern & 0x8000) << 16))


@kernel
def widen(halves: Any, values: Any) -> None:
    """Fill float32 `values` from the bits of as many halves, uint16; both are flat and contiguous."""
    whole = len(values) // LANES * LANES
    for at in range(0, whole, LANES):
        store(values, at, _widened(load(halves, at)))
    if whole < len(values):
        rest, tail = np.zeros(LANES, np.uint16), np.empty(LANES, np.float32)
        rest[: len(values) - whole] = halves[whole:]
        store(tail, 0, _widened(load(rest, 0)))
        values[whole:] = tail[: len(values) - whole]
