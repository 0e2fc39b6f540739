"""Few rows of int8 activations times blocks of 32 codes, by VNNI: sixteen weight rows, one per lane.

A block of each of sixteen rows becomes eight vectors, which hold four codes of every row. Products with a row of
activations, four codes of it in all lanes, add up in integers over the block; the sums meet the scales of the sixteen
rows at once. Nothing is stored but the results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from .....runtime.base.process_cache import process_cache
from .....runtime.jit.llvm_kernel import EmittedKernel
from .....runtime.simd.dot_product import INTS, dot4_vnni
from .....runtime.simd.llvm_vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ....quants.llvm import Block, Codes, build_mask, codes
from ..gemv import WeightRows, minimum, part_range
from ..gemv_int8 import NO_FLOATS, RUN
from ..packed_gemm import EmittedEpilogue
from ..panel import transposed
from ..panel_int8 import QUAD, Int8Tile
from ..register_tile import VECTOR

VARIANT = "VNNI"
"""The instruction set of `dispatch.GEMM` that the kernels need."""
MAX_ROWS = 8
"""Rows of activations whose sums are in registers."""
HALF = LANES // 2
COLUMNS_NBYTES = VECTOR * (HALF + 1)
"""Bytes of the vectors and scales of a block of sixteen rows."""


class ColumnsArguments(NamedTuple):
    """Arguments of `columns_gemm`.

    Attributes:
        tiles: rows of activations as `packed_gemm.pack_tiles` makes them of `tile_for`.
        bias: 0 for none.
        added, added_row: f32 that is added to y, 0 for none, and bytes from row to row of it.
        count, row_bytes, length: rows of the weight, at least 16, bytes and elements of one.
        three_rows, four_rows: bytes of as many rows of the weight, so that addresses take few registers.
        tokens: rows of activations.
        scratch: `scratch_nbytes` for each part, if there are several tiles.
    """

    weight: Any
    tiles: Any
    y: Any
    bias: Any
    added: Any
    added_row: Any
    count: Any
    row_bytes: Any
    three_rows: Any
    four_rows: Any
    length: Any
    tokens: Any
    scratch: Any


def covers(name: str, count: int) -> bool:
    """Whether there is a kernel for `count` rows of a type."""
    kind = codes().get(name)
    fits = kind is not None and kind.group == RUN == WeightRows(name).length and kind.minima is None
    return fits and count >= LANES


def tile_for(name: str, tokens: int) -> Int8Tile:
    """The tile of so many rows of activations."""
    return Int8Tile(-(-tokens // -(-tokens // MAX_ROWS)), codes()[name])


def scratch_nbytes(length: int) -> int:
    """Bytes that a part works in if there are several tiles: the vectors and scales of sixteen rows."""
    return length // RUN * COLUMNS_NBYTES


@process_cache
def columns_gemm(name: str, tile: Int8Tile, several: bool, activation: int | None = None) -> EmittedKernel:
    """``y[t, row] = activation(x[t] . W[row] + bias[row] + added[t, row])`` for x in one tile, or in several;
    `activation`: of `epilogue.EMITTED`."""
    stored = WeightRows(name)

    def write(builder: Any, part: Any, parts: Any, given: ColumnsArguments) -> None:
        code = Code(builder)
        units = builder.sdiv(builder.add(given.count, code.word(LANES - 1)), code.word(LANES))
        runs = builder.sdiv(given.length, code.word(RUN))
        tile_bytes = builder.mul(runs, code.word(tile.nbytes))
        held = builder.add(given.scratch, builder.mul(part, builder.mul(runs, code.word(COLUMNS_NBYTES))))

        def columns(source: Any, run: Any) -> tuple[list[Any], Vector]:
            block = builder.add(source, builder.mul(run, code.word(stored.size)))
            return _columns(code, tile.kind, _addresses(code, given, block))

        with code.loop(*part_range(code, units, part, parts)) as unit:
            first = builder.mul(unit, code.word(LANES))
            row = minimum(code, first, builder.sub(given.count, code.word(LANES)))
            source = builder.add(given.weight, builder.mul(row, given.row_bytes))
            epilogue = EmittedEpilogue(code, given.bias, row, activation, (given.added, given.added_row))
            epilogue.prepare_vector()
            skipped = code.splat(builder.trunc(builder.sub(first, row), I32))
            new = builder.icmp_signed(">=", code.ints_of(range(LANES)).value, skipped.value)
            if several:
                with code.loop(code.word(0), runs) as run:
                    _store(code, *columns(source, run), builder.add(held, builder.mul(run, code.word(COLUMNS_NBYTES))))
            with code.loop(code.word(0), given.tokens, tile.rows) as token:
                x = builder.add(given.tiles, builder.mul(builder.sdiv(token, code.word(tile.rows)), tile_bytes))

                def add(run: Any, totals: list[Any], x: Any = x, source: Any = source) -> list[Any]:
                    at = builder.add(x, builder.mul(run, code.word(tile.nbytes)))
                    kept = builder.add(held, builder.mul(run, code.word(COLUMNS_NBYTES)))
                    return _add_run(code, tile, at, _stored(code, kept) if several else columns(source, run), totals)

                for index, total in enumerate(code.repeat(runs, [NO_FLOATS] * tile.rows, add)):
                    number = builder.add(token, code.word(index))
                    place = builder.add(builder.mul(number, given.count), row)
                    with builder.if_then(builder.icmp_signed("<", number, given.tokens)):
                        value = epilogue.vector(Vector(code, total), number, code.word(0))
                        code.store_masked(value, builder.add(given.y, builder.shl(place, code.word(2))), new)

    label = f"{name}_columns_{tile.rows}{'_several' if several else ''}_{activation}"
    return EmittedKernel(label, write, ColumnsArguments)


def _store(code: Code, columns: list[Any], scales: Vector, to: Any) -> None:
    for index, vector in enumerate((*columns, scales.value)):
        code.store(vector, to, VECTOR * index)


def _stored(code: Code, at: Any) -> tuple[list[Any], Vector]:
    """Load what `_store` wrote."""
    columns = [code.load(at, INTS, VECTOR * index) for index in range(HALF)]
    return columns, code.floats(at, VECTOR * HALF)


def _addresses(code: Code, given: ColumnsArguments, block: Any) -> list[Any]:
    """Addresses of a block in each of sixteen rows."""
    build = code.builder
    found: list[Any] = []
    for _ in range(LANES // 4):
        found += [block, build.add(block, given.row_bytes)]
        found += [build.add(block, build.shl(given.row_bytes, code.word(1))), build.add(block, given.three_rows)]
        block = build.add(block, given.four_rows)
    return found


def _add_run(code: Code, tile: Int8Tile, at: Any, weights: tuple[list[Any], Vector], totals: list[Any]) -> list[Any]:
    """The sums with the products of one block of sixteen rows: `weights` as of `_columns`."""
    columns, scales = weights
    made = []
    for row, total in enumerate(totals):
        found: Any = ir.Constant(INTS, [0] * LANES)
        if tile.kind.zero:
            found = code.splat(code.load(at, I32, tile.starts + 4 * row)).value
        for quad, column in enumerate(columns):
            found = dot4_vnni(code, found, column, code.splat(code.load(at, I32, RUN * row + QUAD * quad)).value)
        scaled = scales * code.splat(code.load(at, F32, tile.steps + 4 * row))
        made.append(code.fma(Vector(code, found).as_float(), scaled, Vector(code, total)).value)
    return made


def _columns(code: Code, kind: Codes, addresses: list[Any]) -> tuple[list[Any], Vector]:
    """Four codes of each of sixteen rows by position in the block, and the rows' scales.

    Rows i and i + 8 share a vector at first, so that each half is a square of eight rows and eight positions.
    """
    build = code.builder
    order = [row + half for row in range(HALF) for half in (0, HALF)]
    pieces: list[Any] = []
    scales: list[Any] = []
    for start in range(0, LANES, kind.blocks):
        made = kind.numbers([Block(code, addresses[row]) for row in order[start : start + kind.blocks]])
        pieces += _blocks(code, kind, made)
        scales.append(made.scales)
    lines = [
        build.bitcast(build.shuffle_vector(one, other, build_mask(list(range(2 * RUN)))), INTS)
        for one, other in zip(pieces[::2], pieces[1::2], strict=True)
    ]
    while len(scales) > 1:
        joined = build_mask(list(range(2 * scales[0].type.count)))
        scales = [
            build.shuffle_vector(one, other, joined) for one, other in zip(scales[::2], scales[1::2], strict=True)
        ]
    held = Vector(code, scales[0]).lanes([order.index(row) for row in range(LANES)])
    return transposed(code, lines), held


def _blocks(code: Code, kind: Codes, made: Any) -> list[Any]:
    """The codes of each block, i8 [32]."""
    build = code.builder
    pieces: dict[int, Any] = {}
    for codes_of, vectors in zip(made.codes, kind.order, strict=True):
        for held, vector in zip(codes_of, vectors, strict=True):
            each = held.count // len(vector)
            for index, first in enumerate(vector):
                pieces[first] = build.shuffle_vector(
                    held.value, held.value, build_mask(list(range(each * index, each * (index + 1))))
                )
    found = []
    for start in range(0, RUN * kind.blocks, RUN):
        piece = pieces[start]
        if piece.type.count < RUN:
            piece = build.shuffle_vector(piece, pieces[start + RUN // 2], build_mask(list(range(RUN))))
        found.append(build.bitcast(piece, vector_type(I8, RUN)))
    return found
