"""Casts among float32, half precision and bfloat16 by compiled code, rounded to nearest even: NumPy takes ten times as long."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from .flat import exact_half, flat
from .kernel import inlined, range_kernel
from .simd import LANES, bits, from_bits, load, room, select, store

SINGLE, HALF, BRAIN = range(3)
"""Float32, IEEE half precision, bfloat16."""
INFINITE = 0x7F800000
HALF_OVERFLOW, HALF_NORMAL = 0x47800000, 0x38800000
"""The bits of 65536, from which on halves are infinite, and of the smallest normal half."""
EXPONENTS_APART = (127 - 15) << 23


@inlined
def _bits(singles: Any, halves: Any, at: int, kind: int) -> Any:
    """Sixteen elements as the bits of float32."""
    if kind == HALF:
        return bits(exact_half(halves, at))
    if kind == BRAIN:
        return load(halves, at) << 16
    return load(singles, at)


@inlined
def _half(pattern: Any) -> Any:
    """Float32 as half precision; NaN keeps the payload that fits and stays NaN."""
    magnitude = pattern & 0x7FFFFFFF
    normal = (magnitude - EXPONENTS_APART + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    small = bits(from_bits(magnitude) + 0.5) - 0x3F000000
    payload = 0x7C00 | ((magnitude & 0x7FFFFF) >> 13)
    nan = select(payload == 0x7C00, payload + 1, payload)
    large = select(magnitude > INFINITE, nan, 0x7C00)
    rounded = select(magnitude >= HALF_OVERFLOW, large, select(magnitude < HALF_NORMAL, small, normal))
    return rounded | ((pattern >> 16) & 0x8000)


@inlined
def _brain(pattern: Any) -> Any:
    """Float32 as bfloat16; NaN becomes the quiet one of its sign."""
    rounded = ((pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16) & 0xFFFF
    return select((pattern & 0x7FFFFFFF) > INFINITE, ((pattern >> 16) & 0x8000) | 0x7FC0, rounded)


@inlined
def _put(singles: Any, halves: Any, at: int, kind: int, pattern: Any) -> None:
    if kind == HALF:
        store(halves, at, _half(pattern))
    elif kind == BRAIN:
        store(halves, at, _brain(pattern))
    else:
        store(singles, at, pattern)


@range_kernel(_nrt=False)
def cast(args: Any, part: int, parts: int) -> None:
    """``[source, target, count, kind of the source, kind of the target]``; the kinds are `SINGLE`, `HALF` and `BRAIN`."""
    count, source, target = args[2], args[3], args[4]
    singles, halves = flat(np.int32, args[0], count), flat(np.uint16, args[0], count)
    cast_singles, cast_halves = flat(np.int32, args[1], count), flat(np.uint16, args[1], count)
    whole = count // LANES * LANES
    for at in range(0, whole, LANES):
        _put(cast_singles, cast_halves, at, target, _bits(singles, halves, at, source))
    if whole < count:
        last_singles, last_halves = room(np.int32, 1), room(np.uint16, 1)
        for i in range(LANES):
            last_singles[i] = singles[whole + i] if source == SINGLE and whole + i < count else 0
            last_halves[i] = halves[whole + i] if source != SINGLE and whole + i < count else 0
        _put(last_singles, last_halves, 0, target, _bits(last_singles, last_halves, 0, source))
        for i in range(count - whole):
            if target == SINGLE:
                cast_singles[whole + i] = last_singles[i]
            else:
                cast_halves[whole + i] = last_halves[i]
