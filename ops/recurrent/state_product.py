"""Products of states and weights in panels, and copies of states: what the kernels of recurrences share."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32
from ...runtime.jit.range_kernel import inner
from ..kernels.gemm.microkernel_f32 import column_of_tiles
from ..kernels.gemm.register_tile import PANEL


@inner
def product_of_panels(
    states: Any,
    state_row: Any,
    rows: Any,
    depth: Any,
    weights: Any,
    columns: Any,
    first: Any,
    last: Any,
    step: Any,
    backwards: Any,
    result: Any,
    row: Any,
    zero: Any,
    spare: Any,
) -> None:
    """`rows` states of `depth` elements, `state_row` bytes apart, times panels of [depth, columns], into `result`,
    `row` bytes from row to row: the panels from `first` to `last`, and those `step` panels after each. `backwards` is
    1 to begin with the last one: what a cache holds of weights that are larger is used when each turn begins where the
    one before ended."""
    wide = last - first
    count = (((columns + PANEL - 1) // PANEL) // step) * wide
    for turn in range(count):
        index = count - 1 - turn if backwards != 0 else turn
        panel = index // wide * step + first + index % wide
        column_of_tiles(
            states,
            state_row,
            4,
            weights + panel * depth * PANEL * 4,
            depth,
            result + panel * PANEL * 4,
            row,
            0,
            rows,
            min(PANEL, columns - panel * PANEL),
            zero,
            0,
            zero,
            np.float32(-np.inf),
            np.float32(np.inf),
            spare,
        )


@inner
def state_product(
    states: Any,
    state_row: Any,
    rows: Any,
    depth: Any,
    weights: Any,
    columns: Any,
    backwards: Any,
    result: Any,
    row: Any,
    zero: Any,
    spare: Any,
) -> None:
    """`product_of_panels` of all panels."""
    count = (columns + PANEL - 1) // PANEL
    product_of_panels(
        states, state_row, rows, depth, weights, columns, 0, count, count, backwards, result, row, zero, spare
    )


@inner
def copied_row(source: Any, target: Any, count: Any) -> None:
    one, other = f32(source), f32(target)
    for j in range(count):
        other[j] = one[j]
