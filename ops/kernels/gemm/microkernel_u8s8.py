"""U8 x s8 GEMM microkernel: int32 sums in registers, four elements of the common dimension per step (dot4).

Rows are signed bytes, read in place; the other factor is unsigned, in panels of `PANEL` columns with four
elements of a column together. By pairs of AVX2 rows are unsigned, and panels signed. Bytes of the other kind are moved
by 128, and so are their zero points. Rows are zero-padded to a multiple of four.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.jit.isa import features
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner
from ....runtime.simd import amx
from ....runtime.simd.dot4_u8s8 import WORDS, dot
from ....runtime.simd.llvm_vector import LANES, Code
from .register_tile import PANEL, VECTOR, Columns, Lines, accumulate, tiles_by_rows

ROWS = 12 if "avx512f" in features() else 3
SIGN_OFFSET = 128
"""Difference between unsigned and signed bytes."""
BYTE_PAIRS = "16-bit pairs"
"""The row of `INTEGERS` whose pairs of products saturate at 16 bits."""
ZERO = ir.Constant(WORDS, [0] * LANES)
TILES: dict[str, Callable[[Code, Sequence[amx.Shape]], amx.Tiles]] = {"AMX": amx.Registers, "emulated": amx.Emulated}
"""Name of an implementation -> its registers for tiles."""
TILE_QUADS = amx.LINE // 4
"""Words of a row of a tile."""


class ByteTile(NamedTuple):
    """Rows of signed bytes, `a_row` bytes apart and of `quads` words, times a panel; sums [rows, PANEL] at `c`."""

    a: Any
    a_row: Any
    b: Any
    quads: Any
    c: Any


def store_sums(code: Code, found: list[Any], address: Any) -> None:
    """Store sums [rows, PANEL]."""
    for index, value in enumerate(found):
        code.store(value, address, VECTOR * index)


def column_kernel(path: str) -> Any:
    """The function that computes a column of tiles, by a row of `INTEGERS`."""

    def multiply_add(code: Code, total: Any, four: Any, column: Any) -> Any:
        return dot(code, path, total, column, four)

    def write(code: Code, rows: int, tile: ByteTile) -> None:
        build = code.builder
        lines = [build.add(tile.a, build.mul(tile.a_row, code.word(row))) for row in range(rows)]
        columns = Columns(tile.b, range(2))
        found = accumulate(code, tile.quads, [ZERO] * (2 * rows), Lines(lines, code.word(4)), columns, multiply_add)
        store_sums(code, found, tile.c)

    tiles = tiles_by_rows((ROWS, min(4, ROWS), 1), ByteTile, write)

    @inner
    def column_of_tiles_u8s8(a: Any, a_row: Any, b: Any, quads: Any, c: Any, rows: Any) -> None:
        """Sums [rows, PANEL] at `c` of rows `a_row` bytes apart, of `quads` words, with one panel."""
        row = 0
        while row < rows:
            row += tiles(rows - row, a + row * a_row, a_row, b, quads, c + row * 4 * PANEL)

    return column_of_tiles_u8s8


class TileColumn(NamedTuple):
    """Functions of kernels that make a column of sums by AMX tiles.

    Attributes:
        begin, end: take and give back the tiles.
        column: as `column_kernel` makes it, for a multiple of `TILE_QUADS` words a row; rows are computed by
            `amx.ROWS`, so that more of them are read, and more sums are written.
    """

    begin: Any
    column: Any
    end: Any


def tile_column(way: str) -> TileColumn:
    """The functions by a row of `TILES`."""
    totals, halves = 4, PANEL // amx.ROWS
    shapes = [amx.Shape(amx.ROWS, amx.LINE)] * 2 * totals

    @intrinsic
    def begin(typing: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            TILES[way](Code(builder), shapes).configure()
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def end(typing: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            TILES[way](Code(builder), shapes).release()
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def column(typing: Any, a: Any, a_row: Any, b: Any, quads: Any, c: Any, rows: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, a_row, b, quads, c, rows = args
            code = Code(builder)
            tiles = TILES[way](code, shapes)
            steps = builder.sdiv(quads, code.word(TILE_QUADS))

            def block(high: int, row: Any) -> None:
                """Sums of `high` tiles of rows."""
                places = [(index, half) for index in range(high) for half in range(halves)]
                line, sums = builder.mul(row, a_row), builder.add(c, builder.mul(row, code.word(4 * PANEL)))
                for index, half in places:
                    tiles.zero(halves * index + half)
                with code.loop(code.word(0), steps) as step:
                    left = builder.add(builder.add(a, line), builder.mul(step, code.word(amx.LINE)))
                    right = builder.add(b, builder.mul(step, code.word(4 * PANEL * TILE_QUADS)))
                    for half in range(halves):
                        tiles.load(totals + 2 + half, builder.add(right, code.word(amx.LINE * half)), 4 * PANEL)
                    for index in range(high):
                        below = builder.mul(a_row, code.word(amx.ROWS * index))
                        tiles.load(totals + index, builder.add(left, below), a_row)
                        for half in range(halves):
                            tiles.dot(halves * index + half, totals + index, totals + 2 + half)
                for index, half in places:
                    place = builder.add(sums, code.word(4 * PANEL * amx.ROWS * index + amx.LINE * half))
                    tiles.store(halves * index + half, place, 4 * PANEL)

            with code.loop(code.word(0), rows, 2 * amx.ROWS) as row:
                few = builder.icmp_signed("<=", builder.sub(rows, row), code.word(amx.ROWS))
                with builder.if_else(few) as (then, otherwise):
                    with then:
                        block(1, row)
                    with otherwise:
                        block(2, row)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), lower

    return TileColumn(begin, column, end)


def pack_panels_u8(matrix: np.ndarray, quads: int = 1) -> np.ndarray:
    """A matrix of bytes [depth, columns] as panels [columns / PANEL, depth / 4, PANEL, 4], unsigned, zeros where there
    is nothing; the depth is padded to a multiple of `quads` words."""
    depth, columns = matrix.shape
    moved = matrix if matrix.dtype == np.uint8 else (matrix.astype(np.int16) + SIGN_OFFSET).astype(np.uint8)
    whole = np.zeros((-(-depth // (4 * quads)) * 4 * quads, -(-columns // PANEL) * PANEL), np.uint8)
    whole[:depth, :columns] = moved
    return np.ascontiguousarray(whole.reshape(len(whole) // 4, 4, -1, PANEL).transpose(2, 0, 3, 1))


def pack_rows_s8(matrix: np.ndarray) -> np.ndarray:
    """Rows of bytes [rows, depth] as int8, zero-padded to a multiple of four."""
    moved = matrix if matrix.dtype == np.int8 else (matrix.astype(np.int16) - SIGN_OFFSET).astype(np.int8)
    return np.pad(moved, [(0, 0), (0, -matrix.shape[1] % 4)])
