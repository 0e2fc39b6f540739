"""Scale search of a group whose codes lie on a lattice, by one thread: candidate after candidate, with the CPU
encoder's order of sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.simd.vector import LANES, any_lane, load, no_lane, select, splat, stack_array, store
from ..encoders.iq2_iq3 import combine, snap, sums


def best_try(
    lattice: Any,
    magnitudes: Any,
    weights: Any,
    roots: Any,
    lane: int,
    shape: Any,
    spread: Any,
    start: Any,
    reach: Any,
    codes: Any,
    strays: Any,
) -> Any:
    """The scale of the group. Where a try is any good, `codes` and `strays` get the best one's codes, and which of them
    had to be moved."""
    count, dims, width, top = shape
    trial, moved = stack_array(np.int32, 8), stack_array(np.int32, 8)
    scale, best = splat(np.float32(start)), splat(np.float32(0))
    for step in range(2 * spread[0] + 1):
        inverse = (np.float32(2 * top + 1) + np.float32(step - spread[0]) * spread[1]) / np.float32(reach)
        for point in range(count // dims):
            store(trial, point * LANES, combine(magnitudes, point * dims, dims, width, top, inverse))
            on_grid = snap(lattice, magnitudes, roots, point * dims, dims, 1.0 / inverse, trial, point, ~no_lane())
            store(moved, point * LANES, select(on_grid, 0, 1))
        sum_qx, sum_q2 = sums(magnitudes, weights, count, dims, width, trial)
        if any_lane((sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)):
            scale = sum_qx / sum_q2
            best = scale * sum_qx
            for point in range(count // dims):
                store(codes, point * LANES, load(trial, point * LANES))
                store(strays, point * LANES, load(moved, point * LANES))
    return scale
