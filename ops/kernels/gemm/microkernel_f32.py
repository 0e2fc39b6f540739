"""F32 GEMM microkernel: up to 12 x 32 outputs in registers, accumulated over the common dimension.

A tile has up to `ROWS` rows and `PANEL` columns. The right matrix comes in panels of `PANEL` columns, zeros after its
last one; the left one is read in place.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32
from ....runtime.jit.isa import features
from ....runtime.jit.range_kernel import inner
from ....runtime.simd.llvm_vector import F32, Code
from .register_tile import FLOATS, PANEL, VECTOR, Columns, Lines, accumulate, limit_and_store, tiles_by_rows

WIDE = "avx512f" in features()
ROWS, TILE_VECTORS = (12, 2) if WIDE else (6, 1) if "avx2" in features() else (3, 1)
"""Rows of a tile, and vectors of each that are in registers at a time."""
PREFETCH_DISTANCE = 8192
"""Bytes by which panels that come from memory are asked for before their use: the first tile reads them faster than the
processor foresees."""
NARROW = PANEL // 2
LAST_ROWS = (ROWS + 1,) if WIDE else ()
"""Rows of tiles that planes of 7 x 7 end with, which a tile of one row would follow otherwise."""
HEIGHTS = (ROWS, min(8, ROWS), min(4, ROWS), 2, 1)
NARROW_HEIGHTS = (16 if WIDE else 4, 4, 1)
"""Rows of tiles of `PANEL` and of `NARROW` columns."""


def vector_groups(vectors: int) -> list[range]:
    """The vectors of a row, as many at a time as are in registers."""
    return [range(first, min(vectors, first + TILE_VECTORS)) for first in range(0, vectors, TILE_VECTORS)]


class TileArguments(NamedTuple):
    """A tile: all addresses and steps are in bytes; each element starts from its row's and its column's bias and is
    limited at the end. `columns_row` is the step of the columns' biases from row to row, 0 where rows share them."""

    a: Any
    a_row: Any
    a_step: Any
    b: Any
    depth: Any
    c: Any
    c_row: Any
    bias: Any
    bias_row: Any
    columns: Any
    columns_row: Any
    ahead: Any
    low: float
    high: float


def _tiles(vectors: int, heights: tuple[int, ...]) -> Any:
    """Tiles of 16 or 32 columns."""

    def write(code: Code, rows: int, tile: TileArguments) -> None:
        build = code.builder
        lines = [build.add(tile.a, build.mul(tile.a_row, code.word(row))) for row in range(rows)]
        for group in vector_groups(vectors):
            starts = []
            for row in range(rows):
                place = build.add(tile.bias, build.mul(tile.bias_row, code.word(row)))
                bias = code.splat(code.load(place, F32)).value
                columns_bias = build.add(tile.columns, build.mul(tile.columns_row, code.word(row)))
                starts += [build.fadd(bias, code.load(columns_bias, FLOATS, VECTOR * half)) for half in group]
            columns = Columns(tile.b, group, tile.ahead)
            found = accumulate(code, tile.depth, starts, Lines(lines, tile.a_step, unrolled=True), columns)
            limit_and_store(code, found, group, (tile.c, tile.c_row, code.word(VECTOR)), tile.low, tile.high)

    return tiles_by_rows(heights, TileArguments, write)


_wide_tiles, _narrow_tiles = _tiles(2, HEIGHTS), _tiles(1, NARROW_HEIGHTS)


@inner
def column_of_tiles(
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    first: Any,
    last: Any,
    width: Any,
    bias: Any,
    bias_row: Any,
    columns: Any,
    low: Any,
    high: Any,
    spare: Any,
    distance: Any = 0,
    columns_row: Any = 0,
) -> None:
    """Rows ``[first, last)`` of `width` columns of the product; `spare` is memory for a tile of `ROWS` rows, wider than
    what is left, `distance` is `PREFETCH_DISTANCE` for panels that are not in cache, `columns_row` as in
    `TileArguments`."""
    row = first
    narrow, whole = width <= NARROW, width in (NARROW, PANEL)
    step = c_row if whole else np.int64(4 * NARROW if narrow else 4 * PANEL)
    while row < last:
        left, ahead = last - row, distance if row == first else 0
        at, start, to = a + row * a_row, bias + row * bias_row, c + row * c_row if whole else spare
        begin, begin_row = columns + row * columns_row, np.int64(columns_row)
        if narrow:
            count = _narrow_tiles(
                left, at, a_row, a_step, b, depth, to, step, start, bias_row, begin, begin_row, ahead, low, high
            )
        else:
            count = _wide_tiles(
                left, at, a_row, a_step, b, depth, to, step, start, bias_row, begin, begin_row, ahead, low, high
            )
        if not whole:
            for line in range(count):
                source, target = f32(spare + line * step), f32(c + (row + line) * c_row)
                for column in range(width):
                    target[column] = source[column]
        row += count


def panels(matrix: np.ndarray) -> np.ndarray:
    """A matrix [depth, columns] as panels [columns / PANEL, depth, PANEL] of float32."""
    depth, columns = matrix.shape
    count = -(-columns // PANEL)
    made = np.empty((count, depth, PANEL), np.float32)
    if columns % PANEL:
        made[-1, :, columns % PANEL :] = 0
    for index in range(count):
        part = matrix[:, index * PANEL : (index + 1) * PANEL]
        made[index, :, : part.shape[1]] = part
    return made
