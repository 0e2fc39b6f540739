"""Columns of sums by pairs of bytes: panels of signed bytes that begin with the order of their quads."""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inner
from ..microkernel_u8s8 import SIGN_OFFSET
from ..register_tile import PANEL
from .microkernel import QUAD_BYTES, row_tiles
from .saturation import FIELDS, WIDTH, order_quads, quad_panels, sort_quads

ALIGNMENT = 64
"""Bytes that quads of a panel begin at a multiple of."""
HALVES = PANEL // WIDTH


@inner
def header_bytes(quads: Any) -> Any:
    """Bytes before the quads of a panel: the counts of `QuadOrder`, and the offset of each quad in a row."""
    return (4 * (FIELDS + quads) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def panel_of_pairs_bytes(quads: int) -> int:
    """Bytes of `PANEL` columns of some quads."""
    return HALVES * int(header_bytes(quads) + QUAD_BYTES * quads)


@inner
def column_of_pairs(a: Any, a_row: Any, b: Any, quads: Any, c: Any, rows: Any) -> None:
    """Sums [rows, PANEL] at `c` of rows of unsigned bytes, `a_row` apart, with a panel of `pack_panels_s8`."""
    header = header_bytes(quads)
    for half in range(HALVES):
        panel, sums = b + half * (header + QUAD_BYTES * quads), c + 4 * WIDTH * half
        row = 0
        while row < rows:
            row += row_tiles(
                rows - row, a + row * a_row, a_row, panel + header, panel + 4 * FIELDS, panel, sums + 4 * PANEL * row
            )


def pack_panels_s8(matrix: np.ndarray, quads: int = 1) -> np.ndarray:
    """A matrix of bytes [depth, columns] as panels of 16 columns, zero-padded to a multiple of `PANEL` columns, signed;
    the depth is padded to a multiple of `quads` words. uint8 [panels, bytes]."""
    depth, columns = matrix.shape
    moved = matrix if matrix.dtype == np.int8 else (matrix.astype(np.int16) - SIGN_OFFSET).astype(np.int8)
    panels = quad_panels(np.pad(moved.T, [(0, -columns % PANEL), (0, -depth % (4 * quads))]))
    order, counts = order_quads(panels)
    packed = np.zeros((len(panels), panel_of_pairs_bytes(panels.shape[1]) // HALVES), np.uint8)
    begin = packed.shape[1] - QUAD_BYTES * panels.shape[1]
    packed[:, : 4 * FIELDS] = counts.view(np.uint8)
    packed[:, 4 * FIELDS : 4 * (FIELDS + order.shape[1])] = np.ascontiguousarray(4 * order).view(np.uint8)
    packed[:, begin:] = sort_quads(panels, order).reshape(len(panels), -1).view(np.uint8)
    return packed
