"""F32 GEMM microkernel: up to 12 x 32 outputs in registers, accumulated over the common dimension.

A tile has up to `ROWS` rows and `PANEL` columns. The right matrix comes in panels of `PANEL` columns, zeros after its
last one; the left one is read in place. `dense_tile` reads panels of `NARROW` columns, whose lines are adjacent.
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
DENSE_HEIGHTS = (6, 5, 4, 2, 1)
"""Rows of tiles of panels of `NARROW` columns."""


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


def _tiles(vectors: int, heights: tuple[int, ...], line: int = 4 * PANEL) -> Any:
    """Tiles of 16 or 32 columns, of panels whose lines are `line` bytes apart."""

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
            columns = Columns(tile.b, group, tile.ahead, line)
            found = accumulate(code, tile.depth, starts, Lines(lines, tile.a_step, unrolled=True), columns)
            limit_and_store(code, found, group, (tile.c, tile.c_row, code.word(VECTOR)), tile.low, tile.high)

    return tiles_by_rows(heights, TileArguments, write)


_wide_tiles, _narrow_tiles = _tiles(2, HEIGHTS), _tiles(1, NARROW_HEIGHTS)
_dense_tiles = _tiles(1, DENSE_HEIGHTS, 4 * NARROW)


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
) -> None:
    """Rows ``[first, last)`` of `width` columns of the product; `spare` is memory for a tile of `ROWS` rows, wider than
    what is left, `distance` is `PREFETCH_DISTANCE` for panels that are not in cache."""
    row = first
    narrow, whole = width <= NARROW, width in (NARROW, PANEL)
    step = c_row if whole else np.int64(4 * NARROW if narrow else 4 * PANEL)
    while row < last:
        left, ahead = last - row, distance if row == first else 0
        at, start, to = a + row * a_row, bias + row * bias_row, c + row * c_row if whole else spare
        if narrow:
            count = _narrow_tiles(
                left, at, a_row, a_step, b, depth, to, step, start, bias_row, columns, 0, ahead, low, high
            )
        else:
            count = _wide_tiles(
                left, at, a_row, a_step, b, depth, to, step, start, bias_row, columns, 0, ahead, low, high
            )
        if not whole:
            for line in range(count):
                source, target = f32(spare + line * step), f32(c + (row + line) * c_row)
                for column in range(width):
                    target[column] = source[column]
        row += count


@inner
def dense_tile(
    left: Any,
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    width: Any,
    start: Any,
    columns: Any,
    columns_row: Any,
    low: Any,
    high: Any,
    spare: Any,
    ahead: Any,
) -> Any:
    """As many rows of the product as a tile has, at most `left`, times a panel of `NARROW` columns, of which `width`
    are stored. `start` is added to each element, `columns` as in `TileArguments`; `spare` is memory for a tile. Gives
    the rows."""
    if width == NARROW:
        return _dense_tiles(
            left, a, a_row, a_step, b, depth, c, c_row, start, 0, columns, columns_row, ahead, low, high
        )
    begin, begin_row, step = columns, np.int64(columns_row), np.int64(4 * NARROW)
    if columns_row != 0:
        for line in range(min(left, DENSE_HEIGHTS[0])):
            source, target = f32(columns + line * columns_row), f32(spare + line * step)
            for column in range(width):
                target[column] = source[column]
        begin, begin_row = spare, step
    rows = _dense_tiles(left, a, a_row, a_step, b, depth, spare, step, start, 0, begin, begin_row, ahead, low, high)
    for line in range(rows):
        source, target = f32(spare + line * step), f32(c + line * c_row)
        for column in range(width):
            target[column] = source[column]
    return rows


def panels(matrix: np.ndarray, panel: int = PANEL) -> np.ndarray:
    """A matrix [depth, columns] as panels [columns / panel, depth, panel] of float32."""
    depth, columns = matrix.shape
    count = -(-columns // panel)
    made = np.empty((count, depth, panel), np.float32)
    if columns % panel:
        made[-1, :, columns % panel :] = 0
    for index in range(count):
        part = matrix[:, index * panel : (index + 1) * panel]
        made[index, :, : part.shape[1]] = part
    return made
