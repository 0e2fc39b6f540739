"""Dot products of rows of signed bytes with a single column of unsigned ones, vectorized along the common dimension.

Panels would hold one column of `PANEL`.
"""

# mypy: disable-error-code="misc, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inner
from .....runtime.simd.dot4_u8s8 import LANES, WORDS, dot
from .....runtime.simd.llvm_vector import I32, Code
from ..microkernel_u8s8 import ZERO, ByteTile, pack_panels_u8
from ..register_tile import PANEL, tiles_by_rows
from .byte_panels import BytePanels

COLUMN_QUADS = LANES
"""Words of four elements of the common dimension that are multiplied at a time."""


def column_dots(path: str) -> BytePanels:
    """Products with a column by a row of `INTEGERS`."""

    def write(code: Code, rows: int, tile: ByteTile) -> None:
        build, nbytes = code.builder, code.word(4 * COLUMN_QUADS)
        lines = [build.add(tile.a, build.mul(tile.a_row, code.word(row))) for row in range(rows)]

        def step(_: Any, held: list[Any]) -> list[Any]:
            offset, *totals = held
            column = code.load(build.add(tile.b, offset), WORDS)
            words = [code.load(build.add(line, offset), WORDS) for line in lines]
            sums = [dot(code, path, total, column, word) for total, word in zip(totals, words, strict=True)]
            return [build.add(offset, nbytes), *sums]

        count = build.sdiv(tile.quads, code.word(COLUMN_QUADS))
        _, *found = code.repeat(count, [code.word(0), *[ZERO] * rows], step)
        for row, total in enumerate(found):
            code.store(code.call("llvm.vector.reduce.add.v16i32", I32, total), tile.c, 4 * PANEL * row)

    tiles = tiles_by_rows((4, 1), ByteTile, write)

    @inner
    def column_of_dots(a: Any, a_row: Any, b: Any, quads: Any, c: Any, rows: Any) -> None:
        """Sums at the start of each of `rows` rows of `PANEL` words at `c`; `quads` is a multiple of `COLUMN_QUADS`."""
        row = 0
        while row < rows:
            row += tiles(rows - row, a + row * a_row, a_row, b, quads, c + row * 4 * PANEL)

    return BytePanels(column_of_dots, _pack_column, lambda quads: 4 * quads, False)


def _pack_column(matrix: np.ndarray, quads: int) -> np.ndarray:
    """A matrix of one column [depth, 1] as unsigned bytes, zero-padded to a multiple of `quads` words."""
    panels = pack_panels_u8(matrix, quads)
    return np.ascontiguousarray(panels[0, :, 0].reshape(-1))
