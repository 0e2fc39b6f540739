"""u8 x s8 GEMM microkernel by vpmaddubsw: rows of unsigned bytes times a panel of 16 columns of signed bytes.

Three loops add to the same sums: couples of quads, whose products are added in 16 bits; quads of which pairs of
products are; and quads whose bytes are widened to 16 bits, because their pairs might saturate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from .....runtime.simd.llvm_vector import I8, I16, I32, Code, vector_type
from ..register_tile import PANEL, tiles_by_rows
from .saturation import FIELDS, WIDTH

HALF = 8
"""Sums of a vector of 32 bytes."""
HALVES = range(WIDTH // HALF)
MAX_ROWS = 4
"""Rows of the tallest tile: 8 of 16 registers hold sums, and 4 the columns of a couple."""
QUAD_BYTES = 4 * WIDTH
SUMS, BYTES, SHORTS = vector_type(I32, HALF), vector_type(I8, 4 * HALF), vector_type(I16, 2 * HALF)
ZERO = ir.Constant(SUMS, [0] * HALF)


class ByteRows(NamedTuple):
    """Rows of unsigned bytes times a panel; sums [rows, 16] at `c`, rows of which are `PANEL` words apart.

    Attributes:
        a_row: bytes from row to row.
        b: the panel, whose quads are in their own order.
        offsets: for each quad of the panel i32: bytes from the beginning of a row to its elements.
        counts: `FIELDS` numbers of quads.
    """

    a: Any
    a_row: Any
    b: Any
    offsets: Any
    counts: Any
    c: Any


def add_products(code: Code, rows: Sequence[Any], panel: Any, offsets: Any, counts: Any, sums: list[Any]) -> list[Any]:
    """Sums of rows, two vectors each, after all quads of a panel."""
    build = code.builder
    couples, apart, widened = (build.sext(code.load(counts, I32, 4 * field), ir.IntType(64)) for field in range(FIELDS))
    held = code.repeat(couples, [offsets, panel, *sums], lambda _, held: _couple(code, rows, held))
    held = code.repeat(apart, held, lambda _, held: _quad(code, rows, held))
    return code.repeat(widened, held, lambda _, held: _widened_quad(code, rows, held))[2:]


def _couple(code: Code, rows: Sequence[Any], held: list[Any]) -> list[Any]:
    offsets, panel, *sums = held
    build = code.builder
    columns = [[_bytes(code, panel, QUAD_BYTES * quad, half) for half in HALVES] for quad in range(2)]
    places = [_offset(code, offsets, quad) for quad in range(2)]
    made = []
    for index, row in enumerate(rows):
        quads = [_spread(code, row, place) for place in places]
        for half in HALVES:
            lanes = [_byte_pairs(code, quad, column[half]) for quad, column in zip(quads, columns, strict=True)]
            made.append(_add_lanes(code, sums[2 * index + half], build.add(*lanes)))
    return [*_moved(code, offsets, panel, 2), *made]


def _quad(code: Code, rows: Sequence[Any], held: list[Any]) -> list[Any]:
    offsets, panel, *sums = held
    columns, place = [_bytes(code, panel, 0, half) for half in HALVES], _offset(code, offsets, 0)
    made = []
    for index, row in enumerate(rows):
        quad = _spread(code, row, place)
        made += [_add_lanes(code, sums[2 * index + half], _byte_pairs(code, quad, columns[half])) for half in HALVES]
    return [*_moved(code, offsets, panel, 1), *made]


def _widened_quad(code: Code, rows: Sequence[Any], held: list[Any]) -> list[Any]:
    offsets, panel, *sums = held
    build = code.builder
    eight = ir.Constant(SHORTS, [8] * 2 * HALF)
    shorts = [build.bitcast(_bytes(code, panel, 0, half), SHORTS) for half in HALVES]
    columns = [(build.ashr(build.shl(both, eight), eight), build.ashr(both, eight)) for both in shorts]
    place, made = _offset(code, offsets, 0), []
    for index, row in enumerate(rows):
        quad = build.bitcast(_spread(code, row, place), SHORTS)
        parts = build.and_(quad, ir.Constant(SHORTS, [255] * 2 * HALF)), build.lshr(quad, eight)
        for half in HALVES:
            total = sums[2 * index + half]
            for part, column in zip(parts, columns[half], strict=True):
                total = build.add(total, code.call("llvm.x86.avx2.pmadd.wd", SUMS, part, column))
            made.append(total)
    return [*_moved(code, offsets, panel, 1), *made]


def _bytes(code: Code, panel: Any, offset: int, half: int) -> Any:
    return code.load(panel, BYTES, offset + 4 * HALF * half)


def _offset(code: Code, offsets: Any, quad: int) -> Any:
    return code.builder.sext(code.load(offsets, I32, 4 * quad), ir.IntType(64))


def _moved(code: Code, offsets: Any, panel: Any, quads: int) -> list[Any]:
    add = code.builder.add
    return [add(offsets, code.word(4 * quads)), add(panel, code.word(QUAD_BYTES * quads))]


def _spread(code: Code, row: Any, place: Any) -> Any:
    """The four bytes of a row in all lanes."""
    build = code.builder
    word = code.load(build.add(row, place), I32)
    one = build.insert_element(ir.Constant(SUMS, ir.Undefined), word, ir.Constant(I32, 0))
    return build.bitcast(build.shuffle_vector(one, one, ir.Constant(vector_type(I32, HALF), [0] * HALF)), BYTES)


def _byte_pairs(code: Code, unsigned: Any, signed: Any) -> Any:
    return code.call("llvm.x86.avx2.pmadd.ub.sw", SHORTS, unsigned, signed)


def _add_lanes(code: Code, total: Any, lanes: Any) -> Any:
    ones = ir.Constant(SHORTS, [1] * 2 * HALF)
    return code.builder.add(total, code.call("llvm.x86.avx2.pmadd.wd", SUMS, lanes, ones))


def store_sums(code: Code, sums: list[Any], address: Any) -> None:
    """Store sums [rows, WIDTH], rows of which are `PANEL` words apart."""
    for index, value in enumerate(sums):
        code.store(value, address, 4 * (PANEL * (index // 2) + HALF * (index % 2)))


def _write(code: Code, rows: int, tile: ByteRows) -> None:
    build = code.builder
    lines = [build.add(tile.a, build.mul(tile.a_row, code.word(row))) for row in range(rows)]
    store_sums(code, add_products(code, lines, tile.b, tile.offsets, tile.counts, [ZERO] * 2 * rows), tile.c)


row_tiles = tiles_by_rows(range(1, MAX_ROWS + 1), ByteRows, _write)
"""A tile of as many rows as fit; gives how many."""
