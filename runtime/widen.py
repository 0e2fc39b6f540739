"""Half precision widened to float32 by compiled code: NumPy takes ten times as long."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from .flat import exact_half, flat
from .kernel import range_kernel
from .simd import LANES, room, store


@range_kernel(_nrt=False)
def widen(args: Any, part: int, parts: int) -> None:
    """``[halves, values, count]``: fill float32 from the bits of as many halves; NaN keeps its payload."""
    count = args[2]
    halves, values = flat(np.uint16, args[0], count), flat(np.float32, args[1], count)
    whole = count // LANES * LANES
    for at in range(0, whole, LANES):
        store(values, at, exact_half(halves, at))
    if whole < count:
        rest, tail = room(np.uint16, 1), room(np.float32, 1)
        for i in range(LANES):
            rest[i] = halves[whole + i] if whole + i < count else 0
        store(tail, 0, exact_half(rest, 0))
        for i in range(count - whole):
            values[whole + i] = tail[i]
